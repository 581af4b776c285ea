//! in_flight → unknown: attempts that nobody will finish. A lapsed lease and a dead worker are doubts, never failures.
//! Questions that a dead worker had leased are put again.
//!
//! Closure stays the end of the lease, whenever the row is reaped: unknown may come early, absence may not.

use std::{sync::Arc, time::Duration};

use sqlx::PgPool;
use uuid::Uuid;

use super::{
    fleet::Fleet,
    folding::{Case, Cause, settle},
    runner::{Progress, Step},
    watch::{Watch, step_wait},
};
use crate::{
    clock::Clock,
    domain::outcome::{DoubtKind, Ended, Outcome, Report, Stage},
    failpoint::failpoint,
    store::{self, attempts::Lapsed, error::StoreError},
    telemetry::metrics::Metrics,
};

/// At most so many in one step.
const BATCH: i64 = 200;

/// The loop.
pub struct Reaper {
    /// The ledger.
    pub pool: PgPool,
    /// Policies.
    pub fleet: Arc<Fleet>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub worker: Uuid,
    /// Knows when the database clock cannot be believed.
    pub watch: Arc<Watch>,
    /// A worker whose heartbeat is older is dead.
    pub heartbeat_limit: Duration,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Step for Reaper {
    const NAME: &'static str = "reaper";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        let mut conn = self.pool.acquire().await?;
        let limit = self.heartbeat_limit.as_secs_f64();
        let (began_at, uptime) = self.watch.began();
        let lapse = store::attempts::Lapse {
            heartbeat_limit: limit,
            began_at,
            uptime: uptime.as_secs_f64(),
            distrusted: &self.distrusted(),
        };
        let lapsed = store::attempts::lapsed(&mut conn, self.clock.sql_now(), &lapse, BATCH).await?;
        let freed = store::queue::asking::free_questions(&mut conn, self.clock.sql_now(), limit).await?;
        if freed > 0 {
            tracing::info!(questions = freed, "questions of a dead worker are put again");
        }
        drop(conn);
        let mut reaped = 0;
        for attempt in lapsed {
            match self.reap(&attempt).await {
                Ok(true) => reaped += 1,
                Ok(false) => {}
                Err(error) if error.is_transient() => {}
                Err(error) if error.spares_others() => {
                    tracing::error!(intent.id = %attempt.intent_id, attempt = attempt.number, %error, "attempt not reaped; it will be tried again");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if reaped == 0 { Progress::Idle } else { Progress::Worked(reaped) })
    }
}

impl Reaper {
    /// Destinations whose leases must not be taken for over, because the database clock has stepped.
    fn distrusted(&self) -> Vec<String> {
        let stepped = self.fleet.iter().filter(|served| self.watch.stepped_within(step_wait(&served.config)));
        stepped.map(|served| served.config.name.clone()).collect()
    }

    async fn reap(&self, lapsed: &Lapsed) -> Result<bool, StoreError> {
        let mut tx = store::begin_durable(&self.pool).await?;
        let (at, asked) = (self.clock.sql_now(), self.clock.boot());
        let Some(intent) = store::intents::lock(&mut tx, lapsed.intent_id, at).await? else { return Ok(false) };
        self.watch.heard(asked, intent.now);
        if self.distrusted().contains(&intent.destination) {
            return Ok(false);
        }
        let (doubt, why) = if lapsed.lease_ended {
            (DoubtKind::LeaseExpired, "the lease ended without a result")
        } else {
            (DoubtKind::WorkerDead, "the worker is gone")
        };
        let mut report = Report::nothing_written(why);
        // How far it came died with the process.
        report.stage = Stage::Handed;
        let ended = Ended { outcome: Outcome::Ambiguous { doubt }, report };
        let closed = store::attempts::close(
            &mut tx,
            lapsed.intent_id,
            lapsed.number,
            lapsed.token,
            &ended,
            None,
            intent.now,
            lapsed.lease_until,
        )
        .await?;
        if !closed {
            return Ok(false);
        }
        let Some(case) = Case::lock(&mut tx, lapsed.intent_id, at).await? else { return Ok(false) };
        let policy = self.fleet.policy(&intent.destination);
        let actor = format!("reaper@{}", self.worker);
        let mut cause = Cause::of(&actor);
        cause.appended = 1;
        cause.detail = Some(why.to_owned());
        let moved = settle(&mut tx, &case, &policy, &cause).await?;
        failpoint!("reap-before-commit");
        tx.commit().await?;
        moved.count(&self.metrics, Self::NAME);
        tracing::warn!(
            intent.id = %intent.id,
            intent.reference = %intent.reference,
            destination = %intent.destination,
            attempt = lapsed.number,
            state = moved.folded.state.as_str(),
            cause = why,
            "attempt in doubt"
        );
        Ok(true)
    }
}
