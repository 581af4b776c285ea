//! The destinations this daemon serves, ready to be sent to and asked; and the generations that doubt may name.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
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
    /// What this process knows about the pace of the fleet.
    pub pace: Known,
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
        Self { config, generation, channel, look_up, slots, breaker, pace: Known::default() }
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

/// Whether a learned pace is in force; the row itself is in the ledger.
#[derive(Debug, Default)]
pub struct Known(AtomicBool);

impl Known {
    /// As the ledger says.
    pub fn learned(&self, learned: bool) {
        self.0.store(learned, Ordering::Relaxed);
    }

    /// As far as this process knows.
    pub fn is_learned(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The breaker doubles its time up to so many times `breaker_open`.
const LONGEST_OPEN: u32 = 10;

/// Opens after a row of bad ends, ambiguous ones included, and lets one attempt through after a while, twice as long after
/// each that went wrong. A matter of this process: each daemon finds out for itself, and each probes for itself.
#[derive(Debug)]
pub struct Breaker {
    limit: u32,
    open_for: Duration,
    bad: AtomicU32,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    /// Time since boot until which nothing is let through; `None`: closed.
    until: Option<Duration>,
    /// Probes since it opened.
    probes: u32,
    /// Time since boot of the first bad end since the last good one.
    bad_since: Option<Duration>,
    /// People were told of it.
    told: bool,
    /// Something got through since this was last asked for.
    good_since: bool,
}

/// What a breaker lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lets {
    /// Sends that may begin.
    pub sends: usize,
    /// It is a probe of a destination that did not work.
    pub probe: bool,
}

/// What people should know about a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachable {
    /// Nothing new.
    AsBefore,
    /// Nothing has got through for so long.
    NotSince(Duration),
    /// Something got through since the last time.
    Again,
}

impl Breaker {
    fn new(limit: u32, open_for: Duration) -> Self {
        Self { limit: limit.max(1), open_for, bad: AtomicU32::new(0), opened: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// With a spread of a fifth either way, so that a fleet does not come back as one.
    fn wait(&self, probes: u32) -> Duration {
        let times = 1_u32.checked_shl(probes).unwrap_or(LONGEST_OPEN).min(LONGEST_OPEN);
        self.open_for.saturating_mul(times).mul_f64(0.8 + 0.4 * rand::random::<f64>())
    }

    /// How many sends may start, given the time since boot: all, one as a probe, or none.
    pub fn allows(&self, boot: Duration, wanted: usize) -> Lets {
        let mut opened = self.lock();
        match opened.until {
            None => Lets { sends: wanted, probe: false },
            Some(until) if boot < until => Lets { sends: 0, probe: false },
            Some(_) => {
                // Half open: one probe, and nothing more until its result is in or the time has gone by again.
                opened.probes = opened.probes.saturating_add(1);
                opened.until = Some(boot + self.wait(opened.probes));
                Lets { sends: wanted.min(1), probe: true }
            }
        }
    }

    /// The conversation worked, whatever the answer was.
    pub fn good(&self) {
        self.bad.store(0, Ordering::Relaxed);
        *self.lock() = Opened { good_since: true, ..Opened::default() };
    }

    /// Unreachable or ambiguous.
    pub fn bad(&self, boot: Duration) {
        let many = self.bad.fetch_add(1, Ordering::Relaxed) + 1 >= self.limit;
        let mut opened = self.lock();
        opened.bad_since.get_or_insert(boot);
        if many && opened.until.is_none() {
            opened.until = Some(boot + self.wait(0));
        }
    }

    /// It puts us off: that opens nothing, but it is not getting through either.
    pub fn put_off(&self, boot: Duration) {
        self.lock().bad_since.get_or_insert(boot);
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.lock().until.is_some()
    }

    /// What people should know, once for each outage.
    pub fn reachable(&self, boot: Duration, limit: Duration) -> Reachable {
        let mut opened = self.lock();
        if std::mem::take(&mut opened.good_since) {
            return Reachable::Again;
        }
        match opened.bad_since.map(|since| boot.saturating_sub(since)) {
            Some(gone) if gone >= limit && !opened.told => {
                opened.told = true;
                Reachable::NotSince(gone)
            }
            Some(_) | None => Reachable::AsBefore,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    #[test]
    fn it_lets_one_probe_through_and_waits_twice_as_long_after_each() {
        let breaker = Breaker::new(3, OPEN);
        for _ in 0..2 {
            breaker.bad(at(0));
        }
        assert_eq!(breaker.allows(at(0), 16), Lets { sends: 16, probe: false });
        breaker.bad(at(0));
        assert_eq!(breaker.allows(at(20), 16).sends, 0);
        // The spread is a fifth either way: 36 s are enough, then 72 s, and never more than 360 s.
        let mut probes = 0;
        for second in 0..3600 {
            let lets = breaker.allows(at(second), 16);
            assert!(lets.sends <= 1 && lets.probe == (lets.sends == 1));
            if lets.probe {
                breaker.bad(at(second));
                probes += 1;
            }
        }
        assert!((9..=19).contains(&probes), "{probes} probes in an hour");
        breaker.good();
        assert_eq!(breaker.allows(at(3600), 16), Lets { sends: 16, probe: false });
    }

    #[test]
    fn people_are_told_once_of_an_outage_and_of_its_end() {
        let breaker = Breaker::new(3, OPEN);
        let limit = Duration::from_secs(900);
        assert_eq!(breaker.reachable(at(0), limit), Reachable::AsBefore);
        breaker.bad(at(0));
        breaker.put_off(at(10));
        assert_eq!(breaker.reachable(at(899), limit), Reachable::AsBefore);
        assert_eq!(breaker.reachable(at(900), limit), Reachable::NotSince(limit));
        assert_eq!(breaker.reachable(at(5000), limit), Reachable::AsBefore);
        breaker.good();
        assert_eq!(breaker.reachable(at(5000), limit), Reachable::Again);
        assert_eq!(breaker.reachable(at(5000), limit), Reachable::AsBefore);
    }
}
