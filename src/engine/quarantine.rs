//! After a rewind: what was pending, in flight, held or in doubt becomes unknown and is asked about, what had ended without
//! effect is marked, and the quarantine ends when its times are over and its questions are answered.
//!
//! The walk goes over all intents once, a stretch at a time, on one process; until it is done nothing is claimed. What it
//! cannot see (transactions that were open, a person who sends again later) no claim picks, and it is put in doubt here.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    fleet::Fleet,
    folding::{Case, Cause, settle},
    runner::{Progress, Step},
};
use crate::{
    clock::Clock,
    domain::{
        outcome::{DoubtKind, Ended, Outcome, Report, Stage},
        rewind::LostAttempts,
        state::State,
    },
    failpoint::failpoint,
    store::{self, error::StoreError, rewinds::Rewind},
    telemetry::metrics::Metrics,
};

/// Intents in one stretch of the walk.
const STRETCH: i64 = 500;
/// What people read about an intent that a rewind concerns.
const WHY: &str = "the database lost history: it may have been sent";

/// The loop.
pub struct Quarantine {
    /// The ledger.
    pub pool: PgPool,
    /// Policies.
    pub fleet: Arc<Fleet>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub worker: Uuid,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Step for Quarantine {
    const NAME: &'static str = "quarantine";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let open = store::rewinds::open(&mut conn).await?;
        let newest = store::rewinds::newest(&mut conn).await?;
        drop(conn);
        self.metrics.quarantine(!open.is_empty());
        let Some((newest, asks_until)) = newest else { return Ok(Progress::Idle) };
        let mut done = 0;
        for rewind in &open {
            done += self.walk(rewind).await?;
        }
        done += self.stragglers(&newest, asks_until).await?;
        for rewind in &open {
            self.end(rewind).await?;
        }
        Ok(if done == 0 { Progress::Idle } else { Progress::Worked(done) })
    }
}

impl Quarantine {
    fn actor(&self) -> String {
        format!("quarantine@{}", self.worker)
    }

    /// One stretch of the walk over all intents.
    async fn walk(&self, rewind: &Rewind) -> Result<usize, StoreError> {
        // Holds the row of the quarantine, so that one process walks; the intents are moved in transactions of their own.
        let mut walk = self.pool.begin().await?;
        let Some(from) = store::rewinds::lock_walk(&mut walk, rewind.number).await? else { return Ok(0) };
        let stretch = store::rewinds::stretch(&mut walk, from, STRETCH).await?;
        let mut ended = Vec::new();
        for (id, state) in &stretch {
            match state {
                State::Held | State::Pending | State::InFlight | State::Unknown | State::Abandoned => {
                    self.put_in_doubt(*id, rewind).await?;
                }
                State::Failed | State::Cancelled => ended.push(*id),
                State::Sent => {}
            }
        }
        let marked = store::rewinds::mark(&mut walk, &ended, rewind.number, &self.actor()).await?;
        failpoint!("quarantine-before-commit");
        let over = i64::try_from(stretch.len()).unwrap_or(STRETCH) < STRETCH;
        let now = self.clock.sql_now();
        let last = stretch.last().map_or(from, |(id, _)| *id);
        store::rewinds::walked(&mut walk, rewind.number, last, over, now).await?;
        walk.commit().await?;
        if over {
            tracing::warn!(rewind = rewind.number, "all intents that a rewind concerns are in doubt now");
        }
        tracing::debug!(rewind = rewind.number, intents = stretch.len(), marked, "walked");
        // The last stretch is work as well: what became due by it is looked at without a pause.
        Ok(stretch.len().max(1))
    }

    /// What would be claimed although a rewind concerns it.
    async fn stragglers(&self, newest: &Rewind, asks_until: DateTime<Utc>) -> Result<usize, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let found = store::rewinds::stragglers(&mut conn, below(asks_until), STRETCH).await?;
        drop(conn);
        for (id, _) in &found {
            self.put_in_doubt(*id, newest).await?;
        }
        Ok(found.len())
    }

    /// Adds to the evidence of an intent that attempts of it may have been lost, and folds.
    async fn put_in_doubt(&self, id: Uuid, rewind: &Rewind) -> Result<(), StoreError> {
        let (at, actor) = (self.clock.sql_now(), self.actor());
        let mut tx = store::begin_durable(&self.pool).await?;
        let Some(case) = Case::lock(&mut tx, id, at).await? else { return Ok(()) };
        if case.intent.rewind >= rewind.number || case.intent.state == State::Sent {
            return Ok(());
        }
        let now = case.intent.now;
        let mut cause = Cause::of(&actor);
        cause.appended = 1;
        cause.detail = Some(WHY.to_owned());
        for open in case.attempts.iter().filter(|a| a.attempt.outcome.is_none()) {
            // Whoever made it may be cut off from this database and still be sending.
            let closure = open.lease_until.max(rewind.closure_at);
            let (number, token) = (open.attempt.number, open.token);
            store::attempts::close(&mut tx, id, number, token, &lost(), None, now, closure).await?;
        }
        let lost = LostAttempts {
            rewind: rewind.number,
            lost_from: rewind.known_until,
            lost_until: rewind.closure_at,
            generation: store::rewinds::generation_of(&mut tx, &case.intent.destination).await?,
        };
        store::rewinds::take(&mut tx, id, &lost, &actor, now).await?;
        let Some(case) = Case::lock(&mut tx, id, at).await? else { return Ok(()) };
        let policy = self.fleet.policy(&case.intent.destination);
        let moved = settle(&mut tx, &case, &policy, &cause).await?;
        tx.commit().await?;
        moved.count(&self.metrics, Self::NAME);
        Ok(())
    }

    async fn end(&self, rewind: &Rewind) -> Result<(), StoreError> {
        let mut tx = self.pool.begin().await?;
        let ended = store::rewinds::end(&mut tx, rewind.number, &self.actor(), self.clock.sql_now()).await?;
        tx.commit().await?;
        if ended {
            tracing::warn!(rewind = rewind.number, "the quarantine is over");
        }
        Ok(())
    }
}

/// How an attempt ends that was open when history was lost.
fn lost() -> Ended {
    let mut report = Report::nothing_written("the database lost history");
    // How far it came, nobody knows here.
    report.stage = Stage::Handed;
    Ended { outcome: Outcome::Ambiguous { doubt: DoubtKind::HistoryLost }, report }
}

/// An id that is larger than those of all intents that were asked for until then; ids sort by time.
fn below(until: DateTime<Utc>) -> Uuid {
    let millis = (until + TimeDelta::hours(1)).timestamp_millis();
    uuid::Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or(u64::MAX >> 16), &[0xff; 10]).into_uuid()
}
