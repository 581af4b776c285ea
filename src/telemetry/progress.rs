//! Whether the loops of this process still make progress. Read by `/livez` and the watchdog; the database plays no part,
//! since restarting every daemon helps nobody while Postgres is away.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;

use crate::clock::Clock;

/// Steps of all loops.
#[derive(Clone)]
pub struct Progress {
    clock: Arc<dyn Clock>,
    loops: Arc<Mutex<BTreeMap<&'static str, Tick>>>,
}

#[derive(Debug, Clone, Copy)]
struct Tick {
    at: Duration,
    limit: Duration,
}

/// One loop, as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct LoopState {
    /// Its name.
    pub name: &'static str,
    /// Seconds since its last step.
    pub seconds_ago: u64,
    /// The same, exactly.
    #[serde(skip)]
    pub ago: Duration,
    /// Longer than it may take.
    pub stuck: bool,
}

impl Progress {
    /// No loops yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, loops: Arc::default() }
    }

    /// A loop begins; it is stuck when `limit` goes by without a step. A step that failed is a step all the same.
    pub fn watch(&self, name: &'static str, limit: Duration) {
        let at = self.clock.boot();
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).insert(name, Tick { at, limit });
    }

    /// A loop made a step.
    pub fn tick(&self, name: &'static str) {
        let at = self.clock.boot();
        if let Some(tick) = self.loops.lock().unwrap_or_else(PoisonError::into_inner).get_mut(name) {
            tick.at = at;
        }
    }

    /// A loop ended as it should.
    pub fn done(&self, name: &'static str) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// All loops, by name.
    pub fn states(&self) -> Vec<LoopState> {
        let now = self.clock.boot();
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops
            .iter()
            .map(|(name, tick)| {
                let ago = now.saturating_sub(tick.at);
                LoopState { name, seconds_ago: ago.as_secs(), ago, stuck: ago > tick.limit }
            })
            .collect()
    }

    /// Whether no loop is stuck.
    pub fn is_alive(&self) -> bool {
        self.states().iter().all(|state| !state.stuck)
    }
}
