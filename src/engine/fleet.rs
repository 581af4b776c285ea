//! The destinations this daemon serves, ready to be sent to and asked; and the generations that doubt may name.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::PgPool;
use tokio::sync::Semaphore;

use crate::{
    channels::Channel,
    config::destination::Destination,
    domain::intent::InDoubt,
    look_up::LookUp,
    store::{self, error::StoreError},
};

/// A destination with its adapters.
pub struct Served {
    /// As configured.
    pub config: Destination,
    /// Hash of what makes it this downstream.
    pub generation: String,
    /// How it is sent to.
    pub channel: Arc<dyn Channel>,
    /// How it is asked.
    pub look_up: Option<Arc<dyn LookUp>>,
    /// Free send slots.
    pub slots: Arc<Semaphore>,
    /// Counts what went wrong in a row.
    pub breaker: Breaker,
}

impl Served {
    /// Puts the adapters together.
    pub fn new(
        config: Destination,
        generation: String,
        channel: Arc<dyn Channel>,
        look_up: Option<Arc<dyn LookUp>>,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(config.limits.concurrency as usize));
        let breaker = Breaker::new(config.limits.breaker_after, config.limits.breaker_open);
        Self { config, generation, channel, look_up, slots, breaker }
    }

    /// The policy that the fold and the placement read.
    pub fn policy(&self) -> Policy {
        Policy::of(&self.config)
    }
}

/// What the engine must know about a destination to place an intent.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What holds in doubt.
    pub in_doubt: InDoubt,
    /// Attempts that may begin a conversation.
    pub attempts: u32,
    /// First back-off.
    pub backoff: Duration,
    /// Largest back-off.
    pub backoff_max: Duration,
    /// It can be asked: how late, how long, how often.
    pub asking: Option<Asking>,
    /// The downstream keeps keys.
    pub replays: bool,
}

/// When to ask.
#[derive(Debug, Clone)]
pub struct Asking {
    /// Everything between the last byte and visibility.
    pub lag: Duration,
    /// How long it can be asked.
    pub horizon: Duration,
    /// Between equal answers.
    pub spacing: Duration,
    /// Before a person is asked.
    pub questions: u32,
}

impl Policy {
    /// Reads the policy of a configured destination.
    pub fn of(config: &Destination) -> Self {
        let in_doubt = config.doubt_policy();
        Self {
            in_doubt,
            attempts: config.limits.attempts,
            backoff: config.limits.backoff,
            backoff_max: config.limits.backoff_max,
            asking: config.look_up.as_ref().map(|look_up| Asking {
                lag: look_up.lag,
                horizon: look_up.horizon,
                spacing: look_up.spacing,
                questions: look_up.questions,
            }),
            // A replay sends the bytes again; where a person decides, nothing does that by itself.
            replays: config.replay.is_some() && in_doubt == InDoubt::Ask,
        }
    }

    /// For a destination that nobody serves any more: it waits for a person.
    pub fn unserved() -> Self {
        Self {
            in_doubt: InDoubt::Person,
            attempts: u32::MAX,
            backoff: Duration::from_secs(60),
            backoff_max: Duration::from_secs(3600),
            asking: None,
            replays: false,
        }
    }
}

/// Opens after a row of bad ends, ambiguous ones included, and lets one attempt through after a while.
#[derive(Debug)]
pub struct Breaker {
    limit: u32,
    open_for: Duration,
    bad: AtomicU32,
    open_until: Mutex<Option<Duration>>,
}

impl Breaker {
    fn new(limit: u32, open_for: Duration) -> Self {
        Self { limit: limit.max(1), open_for, bad: AtomicU32::new(0), open_until: Mutex::new(None) }
    }

    /// How many sends may start, given the time since boot: all, one as a probe, or none.
    pub fn allows(&self, boot: Duration, wanted: usize) -> usize {
        let mut open_until = self.open_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match *open_until {
            None => wanted,
            Some(until) if boot < until => 0,
            Some(_) => {
                // Half open: one probe, and nothing more until its result is in or the time has gone by again.
                *open_until = Some(boot + self.open_for);
                wanted.min(1)
            }
        }
    }

    /// The conversation worked, whatever the answer was.
    pub fn good(&self) {
        self.bad.store(0, Ordering::Relaxed);
        *self.open_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// Unreachable or ambiguous.
    pub fn bad(&self, boot: Duration) {
        if self.bad.fetch_add(1, Ordering::Relaxed) + 1 >= self.limit {
            let mut open_until = self.open_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            open_until.get_or_insert(boot + self.open_for);
        }
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.open_until.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_some()
    }
}

/// Builds the asker of a stored definition; given by the daemon so that the engine needs no registry of adapters.
pub type BuildLookUp = dyn Fn(&Destination) -> Result<Option<Arc<dyn LookUp>>, String> + Send + Sync;

/// One generation of a destination, as it can be asked.
#[derive(Clone)]
pub struct Asked {
    /// Its stored definition.
    pub config: Destination,
    /// The adapter, or why it cannot be asked any more.
    pub look_up: Result<Option<Arc<dyn LookUp>>, String>,
}

/// All destinations.
pub struct Fleet {
    served: HashMap<String, Arc<Served>>,
    build: Box<BuildLookUp>,
    generations: Mutex<HashMap<(String, String), Asked>>,
}

impl Fleet {
    /// Takes the destinations of the configuration.
    pub fn new(served: Vec<Served>, build: Box<BuildLookUp>) -> Self {
        let served = served.into_iter().map(|s| (s.config.name.clone(), Arc::new(s))).collect();
        Self { served, build, generations: Mutex::new(HashMap::new()) }
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Arc<Served>> {
        self.served.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// The policy of a destination, served or not.
    pub fn policy(&self, name: &str) -> Policy {
        self.get(name).map_or_else(Policy::unserved, |served| served.policy())
    }

    /// The generation that an attempt used, built from its stored definition when it is not the present one.
    ///
    /// # Errors
    /// When Postgres does. An unknown or unreadable generation is an `Err` inside [`Asked`], not here.
    pub async fn generation(&self, pool: &PgPool, name: &str, generation: &str) -> Result<Option<Asked>, StoreError> {
        if let Some(served) = self.get(name)
            && served.generation == generation
        {
            return Ok(Some(Asked { config: served.config.clone(), look_up: Ok(served.look_up.clone()) }));
        }
        let slot = (name.to_owned(), generation.to_owned());
        let known = self.generations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(&slot).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let mut conn = pool.acquire().await?;
        let Some(definition) = store::generations::definition(&mut conn, name, generation).await? else {
            return Ok(None);
        };
        let Ok(config) = serde_json::from_value::<Destination>(definition) else { return Ok(None) };
        let asked = Asked { look_up: (self.build)(&config), config };
        self.generations.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(slot, asked.clone());
        Ok(Some(asked))
    }
}
