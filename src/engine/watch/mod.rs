//! What a process remembers of its database, so that it notices when history was lost or the clock has stepped.
//!
//! Every heartbeat compares ([`Watch::beat`]), and so does every transaction that claims ([`Watch::enter`]): a connection that
//! was switched to another server can do nothing before somebody has looked. What follows from a rewind is for
//! [`super::quarantine`].

mod steps;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::Notify;
use uuid::Uuid;

use self::steps::Steps;
use super::folding::after;
use crate::{
    clock::Clock,
    config::destination::Destination,
    domain::{
        failure_mode::FailureMode,
        rewind::{Memory, Position, Standing},
    },
    store::{
        self,
        error::StoreError,
        rewinds::{Look, Noticed},
    },
    telemetry::{metrics::Metrics, notices},
};

/// The newest heartbeat that is left may be this much younger than the last thing that is known: clocks of two hosts differ.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::seconds(60);

/// How long things take here, for the times of a quarantine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// Longest lease of a destination.
    pub lease: Duration,
    /// Longest lag of one.
    pub lag: Duration,
    /// Longest time after which a caller may still repeat a call.
    pub callers: Duration,
}

impl Times {
    /// From the configuration.
    pub fn of<'a>(destinations: impl IntoIterator<Item = &'a Destination>, callers: Duration) -> Self {
        let mut times = Self { callers, ..Self::default() };
        destinations.into_iter().for_each(|config| times.take(config));
        times
    }

    fn take(&mut self, config: &Destination) {
        self.lease = self.lease.max(config.lease());
        self.lag = self.lag.max(config.look_up.as_ref().map_or(Duration::ZERO, |look_up| look_up.lag));
    }
}

/// How long a destination must be left alone after a step of the database clock.
pub fn step_wait(config: &Destination) -> Duration {
    config.lease().max(config.look_up.as_ref().map_or(Duration::ZERO, |look_up| look_up.lag))
}

/// What a heartbeat found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beaten {
    /// All is there.
    Whole,
    /// History was lost; another process had written it down.
    Noted,
    /// History was lost; this process wrote it down.
    Rewound {
        /// Number of the rewind.
        number: i32,
    },
    /// The database was not claimed for an installation yet.
    Unclaimed,
}

/// See the module. One in a process.
pub struct Watch {
    worker: Uuid,
    name: String,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    times: Times,
    memory: Mutex<Option<Memory>>,
    steps: Mutex<Steps>,
    alarm: Notify,
}

impl Watch {
    /// A process that remembers nothing yet.
    pub fn new(worker: Uuid, name: &str, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, times: Times) -> Arc<Self> {
        let steps = Mutex::new(Steps::since(clock.boot(), clock.sql_now()));
        let (memory, alarm) = (Mutex::new(None), Notify::new());
        Arc::new(Self { worker, name: name.to_owned(), clock, metrics, times, memory, steps, alarm })
    }

    /// Resolves when a claim met a database that is not the one of the last heartbeat: beat at once.
    pub async fn alarmed(&self) {
        self.alarm.notified().await;
    }

    /// One heartbeat: looks where the database stands, compares, writes down a rewind that nobody has written down.
    ///
    /// # Errors
    /// When Postgres does; [`StoreError::Moved`] when another process was faster to write: beat again.
    pub async fn beat(&self, pool: &PgPool) -> Result<Beaten, StoreError> {
        let memory = self.memory();
        let asked = self.clock.boot();
        let mut tx = store::begin_durable(pool).await?;
        let Some(look) = store::rewinds::look(&mut tx, self.worker, self.clock.sql_now()).await? else {
            return Ok(Beaten::Unclaimed);
        };
        let answered = self.clock.boot();
        let standing = look.found.against(memory.as_ref());
        let mut position = look.found.position.clone();
        let beaten = match &standing {
            Standing::Whole => Beaten::Whole,
            Standing::Noted => Beaten::Noted,
            Standing::Lost { why, copy } => {
                let noticed = self.noticed(&mut tx, &look, memory.as_ref(), why, *copy).await?;
                let Some((number, history)) = store::rewinds::record(&mut tx, &noticed).await? else {
                    return Err(StoreError::Moved { what: "the history", row: position.history });
                };
                position.history = history;
                Beaten::Rewound { number }
            }
        };
        let beats = self.sign(&mut tx).await?;
        tx.commit().await?;
        self.remember(position, beats);
        self.compare_clocks(asked, answered, look.now);
        self.tell(beaten, &standing);
        Ok(beaten)
    }

    /// Beats; a process that the database has forgotten is registered anew.
    async fn sign(&self, conn: &mut PgConnection) -> Result<i64, StoreError> {
        let at = self.clock.sql_now();
        if let Some(beats) = store::workers::beat(conn, self.worker, at).await? {
            return Ok(beats);
        }
        store::workers::register(conn, self.worker, &self.name).await?;
        Ok(store::workers::beat(conn, self.worker, at).await?.unwrap_or_default())
    }

    async fn noticed<'a>(
        &self,
        conn: &mut PgConnection,
        look: &'a Look,
        memory: Option<&'a Memory>,
        why: &'a str,
        copy: bool,
    ) -> Result<Noticed<'a>, StoreError> {
        let mut times = self.times;
        // What other processes serve counts as well.
        for row in store::destinations::list(conn).await? {
            if let Ok(config) = serde_json::from_value::<Destination>(row.definition) {
                times.take(&config);
            }
        }
        let closure_at = after(look.now, times.lease);
        Ok(Noticed {
            look,
            memory,
            why,
            copy,
            worker: self.worker,
            known_until: look.known_until - CLOCKS_DIFFER,
            closure_at,
            quiet_until: after(closure_at, times.lag),
            ask_first_until: after(look.now, times.callers),
        })
    }

    /// First statement of a transaction that claims: makes it durable and says whether it may. `None`: nothing may be claimed,
    /// a quarantine is on or this is not the database of the last heartbeat.
    ///
    /// # Errors
    /// When Postgres does.
    pub async fn enter(&self, conn: &mut PgConnection) -> Result<Option<Entered>, StoreError> {
        // Before the question, so that a healthy database cannot stand behind it.
        let memory = self.memory();
        let (position, open) = store::rewinds::enter(conn, self.clock.sql_now()).await?;
        if let (Some(memory), Some(position)) = (&memory, &position)
            && let Some(why) = memory.position.ahead_of(position)
        {
            tracing::error!(why, "nothing is claimed: this is not the database of the last heartbeat");
            self.alarm.notify_one();
            return Ok(None);
        }
        Ok(open.then_some(Entered { position }))
    }

    /// Commits a transaction that claims. `false`: it may not be kept everywhere, so nothing of it may be sent.
    ///
    /// # Errors
    /// When Postgres does: then nobody knows whether it is there.
    pub async fn commit(&self, tx: Transaction<'_, Postgres>, entered: Entered) -> Result<bool, StoreError> {
        let (committed, warned) = notices::heard(tx.commit()).await;
        committed?;
        if let (Some(position), Some(memory)) = (entered.position, self.lock_memory().as_mut())
            && memory.position.history == position.history
        {
            memory.position.lsn = memory.position.lsn.max(position.lsn);
        }
        Ok(!warned)
    }

    /// Why absence must not be believed just now about a destination and something that began at `since`; `None` when it may.
    pub fn distrusts(&self, wait: Duration, since: DateTime<Utc>) -> Option<String> {
        self.lock_steps().distrusts(self.clock.boot(), wait, since)
    }

    /// Whether the database clock stepped less than `wait` ago.
    pub fn stepped_within(&self, wait: Duration) -> bool {
        self.lock_steps().stepped_within(self.clock.boot(), wait)
    }

    /// When this process began, by the database clock, and how long that is by its own.
    pub fn began(&self) -> (DateTime<Utc>, Duration) {
        self.lock_steps().began(self.clock.boot())
    }

    /// A reading of the database clock that was asked for at `asked` (since boot) and has just come.
    pub fn heard(&self, asked: Duration, now: DateTime<Utc>) {
        self.compare_clocks(asked, self.clock.boot(), now);
    }

    fn compare_clocks(&self, asked: Duration, answered: Duration, now: DateTime<Utc>) {
        let Some(step) = self.lock_steps().heard(asked, answered, now) else { return };
        self.metrics.clock_stepped();
        tracing::error!(
            seconds = step,
            "the database clock stepped against ours; leases are not taken for over, and absence is not believed for a while"
        );
    }

    fn tell(&self, beaten: Beaten, standing: &Standing) {
        let why = match standing {
            Standing::Lost { why, .. } => why.as_str(),
            Standing::Noted => "another daemon has written it down",
            Standing::Whole => return,
        };
        if let Beaten::Rewound { .. } = beaten {
            self.metrics.failure_mode(FailureMode::LedgerRewound);
        }
        tracing::error!(why, "the database lost history: nothing is sent until what may be lost has been asked about");
    }

    fn memory(&self) -> Option<Memory> {
        self.lock_memory().clone()
    }

    fn remember(&self, position: Position, beats: i64) {
        let mut memory = self.lock_memory();
        let mut left = memory.as_ref().map(|memory| memory.left.clone()).unwrap_or_default();
        let mut position = position;
        if let Some(before) = memory.as_ref() {
            if before.position.history == position.history {
                position.lsn = position.lsn.max(before.position.lsn);
            } else {
                left.push(before.position.history);
            }
        }
        *memory = Some(Memory { position, beats, left });
    }

    fn lock_memory(&self) -> std::sync::MutexGuard<'_, Option<Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_steps(&self) -> std::sync::MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leave to claim in one transaction. Spent by its commit.
#[derive(Debug)]
#[must_use = "a claim is committed with it"]
pub struct Entered {
    position: Option<Position>,
}
