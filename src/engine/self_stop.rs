//! The self-stop of one attempt: clocks at every write, and the row in Postgres before the last bytes where it matters.
//!
//! Not a fence: a process frozen between the check and the write can still act. That is found by asking.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    clock::Clock,
    domain::gate::{BoxFuture, Gate},
    store,
};

/// From this age on a first attempt asks the row as well.
const FRESH: Duration = Duration::from_secs(5);

/// How long the row may take to answer; an attempt that cannot be sure does not send.
const ROW_LIMIT: Duration = Duration::from_secs(3);

/// The moment by which an attempt must have stopped writing, by two clocks; the stricter counts.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    started: Duration,
    boot: Duration,
    wall: DateTime<Utc>,
}

impl Deadline {
    /// Reads the clocks. Call it *before* the claim is sent: the lease starts later, in the database.
    pub fn before_claim(clock: &dyn Clock, lease: Duration) -> Self {
        let started = clock.boot();
        Self { started, boot: started + lease, wall: clock.now() + lease }
    }

    fn remaining(&self, clock: &dyn Clock) -> Duration {
        let boot = self.boot.saturating_sub(clock.boot());
        let wall = (self.wall - clock.now()).to_std().unwrap_or_default();
        boot.min(wall)
    }

    /// The same, ending no later than `limit` from the start (a replay must end inside the key's life).
    pub fn no_longer_than(self, limit: Duration) -> Self {
        let lease = self.boot.saturating_sub(self.started);
        let cut = lease.saturating_sub(limit);
        Self { boot: self.boot.saturating_sub(cut), wall: self.wall - cut, ..self }
    }
}

/// The gate of one attempt.
pub struct SelfStop {
    /// Clocks.
    pub clock: Arc<dyn Clock>,
    /// When it closes.
    pub deadline: Deadline,
    /// Where the row is.
    pub pool: PgPool,
    /// The intent.
    pub intent_id: Uuid,
    /// The attempt.
    pub attempt: i32,
    /// Its fence.
    pub token: Uuid,
}

impl Gate for SelfStop {
    fn is_open(&self) -> bool {
        !self.remaining().is_zero()
    }

    fn remaining(&self) -> Duration {
        self.deadline.remaining(&*self.clock)
    }

    fn last_bytes(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if !self.is_open() {
                return false;
            }
            let age = self.clock.boot().saturating_sub(self.deadline.started);
            if self.attempt > 1 || age > FRESH {
                // One statement in auto-commit; no BEGIN is ever cancelled.
                let still = store::attempts::still_open(&self.pool, self.intent_id, self.attempt, self.token);
                match tokio::time::timeout(ROW_LIMIT, still).await {
                    Ok(Ok(true)) => {}
                    Ok(Ok(false) | Err(_)) | Err(_) => return false,
                }
            }
            self.is_open()
        })
    }
}
