//! held, pending → cancelled: deadlines that passed, whether or not anybody would ever have claimed the row. Independent
//! of claims, so that nothing expires in silence or waits for ever.

use std::{sync::Arc, time::Duration};

use sqlx::PgPool;
use uuid::Uuid;

use super::{
    fleet::{Fleet, Reachable},
    folding::{Case, Cause, settle},
    runner::{Progress, Step},
};
use crate::{
    clock::Clock,
    domain::{reason::Reason, state::State},
    store::{self, error::StoreError},
    telemetry::metrics::Metrics,
};

/// At most so many in one step.
const BATCH: i64 = 200;
/// Rows looked at in one step of the walk over all intents.
const WALK: i64 = 1000;

/// The loop.
pub struct Sweeper {
    pool: PgPool,
    fleet: Arc<Fleet>,
    clock: Arc<dyn Clock>,
    worker: Uuid,
    near: Duration,
    metrics: Arc<Metrics>,
    walked_to: Uuid,
}

impl Sweeper {
    /// A sweeper; `near` is how long before a deadline people are told.
    pub fn new(
        pool: PgPool,
        fleet: Arc<Fleet>,
        clock: Arc<dyn Clock>,
        worker: Uuid,
        near: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { pool, fleet, clock, worker, near, metrics, walked_to: Uuid::nil() }
    }

    async fn expire(&self, id: Uuid) -> Result<bool, StoreError> {
        let mut tx = store::begin_durable(&self.pool).await?;
        let Some(case) = Case::lock(&mut tx, id, self.clock.sql_now()).await? else { return Ok(false) };
        match case.intent.state {
            State::InFlight => return Ok(false),
            State::Unknown | State::Abandoned => {
                // Nothing is sent after it, and what may have happened before it is still asked about.
                store::queue::forget_deadline(&mut tx, id).await?;
                tx.commit().await?;
                return Ok(true);
            }
            State::Held | State::Pending | State::Sent | State::Failed | State::Cancelled => {}
        }
        let policy = self.fleet.policy(&case.intent.destination);
        let actor = format!("sweeper@{}", self.worker);
        let mut cause = Cause::of(&actor);
        cause.detail = Some("the deadline passed".to_owned());
        let moved = settle(&mut tx, &case, &policy, &cause).await?;
        tx.commit().await?;
        moved.count(&self.metrics, Self::NAME);
        tracing::warn!(intent.id = %id, intent.reference = %case.intent.reference, state = moved.folded.state.as_str(), "deadline passed");
        Ok(true)
    }

    async fn warn(&self) -> Result<usize, StoreError> {
        let mut tx = self.pool.begin().await?;
        let near = self.near.as_secs_f64();
        let warned = store::escalations::deadline_near(&mut tx, near, self.clock.sql_now(), BATCH).await?;
        tx.commit().await?;
        Ok(usize::try_from(warned).unwrap_or(0))
    }

    /// Destinations with work that no configuration names: nobody will ever pick it up.
    async fn unserved(&self) -> Result<(), StoreError> {
        let mut conn = self.pool.acquire().await?;
        for name in store::generations::withdrawn_with_work(&mut conn).await? {
            let summary = format!("{name} left the configuration with intents that wait for it");
            store::escalations::raise_destination(&mut conn, &name, Reason::Unsupported, &summary).await?;
        }
        Ok(())
    }

    /// Tells people of destinations that nothing gets through to, once for each outage, and takes it back when it works.
    async fn reachable(&self) -> Result<(), StoreError> {
        for served in self.fleet.iter() {
            let name = &served.config.name;
            let (reason, limit) = (Reason::DestinationParked, served.config.limits.unreachable_after);
            match served.breaker.reachable(self.clock.boot(), limit) {
                Reachable::AsBefore => {}
                Reachable::NotSince(gone) => {
                    let minutes = gone.as_secs() / 60;
                    let summary = format!(
                        "nothing has got through to {name} for {minutes} min; it is not parked and goes on being tried"
                    );
                    let mut conn = self.pool.acquire().await?;
                    store::escalations::raise_destination(&mut conn, name, reason, &summary).await?;
                    tracing::error!(destination = %name, minutes, "nothing gets through");
                }
                Reachable::Again => {
                    let by = format!("sweeper@{}", self.worker);
                    let mut conn = self.pool.acquire().await?;
                    store::escalations::close_reachable(&mut conn, name, reason, &by).await?;
                }
            }
        }
        Ok(())
    }

    async fn put_back(&self, id: Uuid) -> Result<(), StoreError> {
        let mut tx = self.pool.begin().await?;
        let Some(case) = Case::lock(&mut tx, id, self.clock.sql_now()).await? else { return Ok(()) };
        let policy = self.fleet.policy(&case.intent.destination);
        let moved = settle(&mut tx, &case, &policy, &Cause::of(&format!("sweeper@{}", self.worker))).await?;
        tx.commit().await?;
        moved.count(&self.metrics, Self::NAME);
        Ok(())
    }

    /// Walks over all intents, a stretch at a time, for unsettled ones without a queue row. There must be none.
    async fn walk(&mut self) -> Result<usize, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let (orphans, last) = store::queue::orphans(&mut conn, self.walked_to, WALK).await?;
        drop(conn);
        self.walked_to = last.unwrap_or_default();
        self.metrics.stranded(i64::try_from(orphans.len()).unwrap_or(i64::MAX));
        for id in &orphans {
            tracing::error!(intent.id = %id, "an unsettled intent has no queue row; it is put back");
            match self.put_back(*id).await {
                Ok(()) => {}
                Err(error) if error.spares_others() => tracing::error!(intent.id = %id, %error, "it was not put back"),
                Err(error) => return Err(error),
            }
        }
        Ok(orphans.len())
    }
}

impl Step for Sweeper {
    const NAME: &'static str = "sweeper";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let passed = store::queue::past_deadline(&mut conn, self.clock.sql_now(), BATCH).await?;
        drop(conn);
        let mut moved = 0;
        for id in passed {
            match self.expire(id).await {
                Ok(done) => moved += usize::from(done),
                Err(error) if error.is_transient() => {}
                Err(error) if error.spares_others() => {
                    tracing::error!(intent.id = %id, %error, "deadline passed, and the intent was not moved; it will be tried again");
                }
                Err(error) => return Err(error),
            }
        }
        moved += self.warn().await?;
        self.unserved().await?;
        self.reachable().await?;
        moved += self.walk().await?;
        Ok(if moved == 0 { Progress::Idle } else { Progress::Worked(moved) })
    }
}
