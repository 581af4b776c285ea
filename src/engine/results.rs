//! in_flight → what the fold says: writes results in batches, with their journal rows. A row that fails is split off.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use uuid::Uuid;

use super::{
    auditor,
    dispatcher::Claim,
    fleet::{Fleet, Policy},
    folding::{Case, Cause, EvidenceTold, Moved, after, settle},
};
use crate::{
    clock::Clock,
    domain::{
        backoff,
        evidence::AttemptKind,
        failure_mode::FailureMode,
        outcome::{Ended, Outcome, Proof, Report},
        reason::Reason,
        state::State,
    },
    failpoint::failpoint,
    store::{self, audits::Enrolment, error::StoreError, journal::Entry, queue::SentBatch, witnesses::Witness},
    telemetry::metrics::Metrics,
};

/// An attempt that ended, on its way into the ledger.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The intent.
    pub intent_id: Uuid,
    /// Its destination.
    pub destination: String,
    /// Key that was used.
    pub key: String,
    /// Reference, lower case.
    pub reference: String,
    /// Occurrence.
    pub occurrence: i32,
    /// Recipient.
    pub recipient: String,
    /// Number of the attempt.
    pub attempt: i32,
    /// Its fence.
    pub token: Uuid,
    /// Generation that was sent to.
    pub generation: String,
    /// Claim, database clock.
    pub claimed_at: DateTime<Utc>,
    /// End of the lease: closure.
    pub lease_until: DateTime<Utc>,
    /// Digest of the rendering.
    pub digest: Option<Vec<u8>>,
    /// What it learned.
    pub ended: Ended,
    /// The destination cannot be asked: write at once.
    pub urgent: bool,
}

impl Finished {
    /// Claimed, and nothing was written.
    pub(super) fn not_started(destination: &str, claim: &Claim, why: &str) -> Self {
        Self {
            intent_id: claim.outgoing.intent_id,
            destination: destination.to_owned(),
            key: claim.outgoing.key.clone(),
            reference: claim.outgoing.reference.to_ascii_lowercase(),
            occurrence: claim.outgoing.occurrence,
            recipient: claim.outgoing.recipient.clone(),
            attempt: claim.outgoing.attempt,
            token: claim.token,
            generation: String::new(),
            claimed_at: claim.claimed_at,
            lease_until: claim.lease_until,
            digest: None,
            ended: Ended {
                outcome: Outcome::NotSent { proof: Proof::NotStarted, retry_after: None },
                report: Report::nothing_written(why),
            },
            urgent: true,
        }
    }

    fn is_plain_success(&self) -> bool {
        self.attempt == 1 && matches!(self.ended.outcome, Outcome::Sent { .. })
    }
}

/// Writes results. Owned by the daemon, which runs it until all senders are gone.
pub struct Recorder {
    /// The ledger.
    pub pool: PgPool,
    /// Policies.
    pub fleet: Arc<Fleet>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This process.
    pub worker: Uuid,
    /// Wakes the dispatcher and whoever waits for a result.
    pub wake: Arc<Notify>,
    /// Wakes the reconciler, when there is something new to ask about.
    pub doubt: Arc<Notify>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    witnessed: HashMap<String, Duration>,
}

/// How long results gather.
const GATHER: Duration = Duration::from_millis(3);
/// How many at most.
const BATCH: usize = 256;
/// Until a failed write is tried again, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);
/// One witness per destination in this time.
const WITNESS_EVERY: Duration = Duration::from_millis(500);

impl Recorder {
    /// A recorder.
    pub fn new(
        pool: PgPool,
        fleet: Arc<Fleet>,
        clock: Arc<dyn Clock>,
        worker: Uuid,
        wake: Arc<Notify>,
        doubt: Arc<Notify>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { pool, fleet, clock, worker, wake, doubt, metrics, witnessed: HashMap::new() }
    }

    /// Writes until every sender is gone. A failing write is tried again: what is in hand must not be lost while the
    /// process lives. It does not hold up the results behind it, until a whole batch has failed: then nothing more is
    /// taken, and a full channel stops the claiming.
    pub async fn run(mut self, mut results: mpsc::Receiver<Finished>) {
        let mut left: Vec<Finished> = Vec::new();
        let mut wait = FIRST_RETRY;
        let mut retry_at = Instant::now();
        let mut open = true;
        while open || !left.is_empty() {
            let mut batch = Vec::new();
            tokio::select! {
                taken = results.recv_many(&mut batch, BATCH), if open && left.len() < BATCH => open = taken > 0,
                () = tokio::time::sleep_until(retry_at), if !left.is_empty() => {}
            }
            if !batch.is_empty() {
                self.gather(&mut batch, &mut results).await;
                if left.is_empty() {
                    wait = FIRST_RETRY;
                    retry_at = Instant::now() + wait;
                }
                left.extend(self.write(batch).await);
            }
            if !left.is_empty() && Instant::now() >= retry_at {
                left = self.write(left).await;
                wait = (wait * 2).min(LAST_RETRY);
                retry_at = Instant::now() + wait;
            }
            self.wake.notify_waiters();
        }
    }

    /// Waits a moment for more, unless one of them must not wait.
    async fn gather(&self, batch: &mut Vec<Finished>, results: &mut mpsc::Receiver<Finished>) {
        if batch.len() >= BATCH || batch.iter().any(|f| f.urgent) {
            return;
        }
        tokio::time::sleep(GATHER).await;
        while batch.len() < BATCH
            && let Ok(more) = results.try_recv()
        {
            batch.push(more);
        }
    }

    /// Writes what can be written and returns the rest.
    pub async fn write(&mut self, batch: Vec<Finished>) -> Vec<Finished> {
        failpoint!("result-before-write");
        super::rate::learn(&self.pool, &self.fleet, &self.clock, &batch).await;
        let (plain, careful): (Vec<_>, Vec<_>) = batch.into_iter().partition(Finished::is_plain_success);
        let mut left = Vec::new();
        let mut alone = careful;
        if !plain.is_empty() {
            match self.write_plain(&plain).await {
                Ok(settled) => {
                    for finished in &plain {
                        if settled.contains(&finished.intent_id) {
                            self.told(finished, None);
                        }
                    }
                    alone.extend(plain.into_iter().filter(|f| !settled.contains(&f.intent_id)));
                }
                Err(error) => {
                    tracing::warn!(%error, results = plain.len(), "results were not written together; each is tried alone");
                    alone.extend(plain);
                }
            }
        }
        for finished in alone {
            match self.write_one(&finished).await {
                Ok(moved) => {
                    if moved.as_ref().is_some_and(|m| m.folded.state == State::Unknown) {
                        self.doubt.notify_waiters();
                    }
                    // Otherwise nothing was tried, or nothing is there that it could be told of.
                    if moved.is_some() {
                        self.told(&finished, moved.as_ref());
                    }
                }
                Err(error) => {
                    tracing::warn!(intent.id = %finished.intent_id, attempt = finished.attempt, %error, "result not written; it will be tried again");
                    left.push(finished);
                }
            }
        }
        failpoint!("result-after-write");
        left
    }

    async fn write_plain(&mut self, plain: &[Finished]) -> Result<Vec<Uuid>, StoreError> {
        let mut batch = SentBatch::default();
        for finished in plain {
            batch.ids.push(finished.intent_id);
            batch.tokens.push(finished.token);
            batch.provider_ids.push(provider_id(&finished.ended).unwrap_or_default());
            batch.reports.push(serde_json::to_string(&finished.ended).unwrap_or_else(|_| "null".to_owned()));
        }
        let mut tx = store::begin_durable(&self.pool).await?;
        let at = self.clock.sql_now();
        let answered = answered_by_sent();
        let settled = store::queue::settle_sent(&mut tx, &batch, self.worker, &answered, at).await?;
        for finished in plain.iter().filter(|f| settled.contains(&f.intent_id)) {
            self.witness(&mut tx, finished).await?;
            self.sample(&mut tx, finished, at).await?;
        }
        tx.commit().await?;
        Ok(settled)
    }

    /// Keeps a success as a witness now and then.
    async fn witness(&mut self, conn: &mut PgConnection, finished: &Finished) -> Result<(), StoreError> {
        let boot = self.clock.boot();
        if self.witnessed.get(&finished.destination).is_some_and(|last| boot < *last + WITNESS_EVERY) {
            return Ok(());
        }
        let millis = i64::try_from(finished.ended.report.millis).unwrap_or(0);
        let witness = Witness {
            intent_id: finished.intent_id,
            started_at: finished.claimed_at,
            ended_at: finished.claimed_at + chrono::TimeDelta::milliseconds(millis),
            key: finished.key.clone(),
            reference: finished.reference.clone(),
            occurrence: finished.occurrence,
            recipient: finished.recipient.clone(),
            account: finished.ended.report.account.clone(),
        };
        store::witnesses::keep(conn, &finished.destination, &finished.generation, &witness).await?;
        self.witnessed.insert(finished.destination.clone(), boot);
        Ok(())
    }

    /// Has an ordinary send asked about later, now and then.
    async fn sample(
        &self,
        conn: &mut PgConnection,
        finished: &Finished,
        at: Option<DateTime<Utc>>,
    ) -> Result<(), StoreError> {
        let Some(served) = self.fleet.get(&finished.destination) else { return Ok(()) };
        let Some(look_up) = &served.config.look_up else { return Ok(()) };
        if served.generation != finished.generation || rand::random::<f64>() >= look_up.audit.share {
            return Ok(());
        }
        let sent_until = after(finished.claimed_at, Duration::from_millis(finished.ended.report.millis));
        let enrolment = Enrolment {
            intent_id: finished.intent_id,
            destination: &finished.destination,
            generation: &finished.generation,
            attempt: finished.attempt,
            sent_from: finished.claimed_at,
            sent_until,
            due_at: auditor::first(sent_until, look_up.lag),
            now: at,
        };
        store::audits::sample(conn, &enrolment, look_up.audit.per_minute).await?;
        Ok(())
    }

    async fn write_one(&mut self, finished: &Finished) -> Result<Option<Moved>, StoreError> {
        let mut tx = store::begin_durable(&self.pool).await?;
        let policy = self.fleet.policy(&finished.destination);
        let actor = format!("dispatcher@{}", self.worker);
        let moved = record(&mut tx, finished, &policy, &actor, self.clock.sql_now()).await?;
        if moved.is_some() && finished.is_plain_success() {
            self.witness(&mut tx, finished).await?;
        }
        tx.commit().await?;
        Ok(moved)
    }

    /// One line per attempt; never payload or recipient.
    fn told(&self, finished: &Finished, moved: Option<&Moved>) {
        let report = &finished.ended.report;
        tracing::info!(
            intent.id = %finished.intent_id,
            intent.reference = %finished.reference,
            destination = %finished.destination,
            attempt = finished.attempt,
            outcome = finished.ended.outcome.as_str(),
            stage = ?report.stage,
            bytes = report.bytes_handed,
            code = report.code,
            duration_ms = report.millis,
            state = moved.map_or("sent", |m| m.folded.state.as_str()),
            cause = report.cause.as_deref(),
            "attempt ended"
        );
        match moved {
            Some(moved) => moved.count(&self.metrics, "dispatcher"),
            None => self.metrics.moved("sent", "dispatcher"),
        }
        let seconds = std::time::Duration::from_millis(report.millis).as_secs_f64();
        self.metrics.attempt(&finished.destination, finished.ended.outcome.as_str(), seconds);
    }
}

/// What being sent answers.
fn answered_by_sent() -> Vec<String> {
    Reason::ALL
        .into_iter()
        .filter(|reason| !reason.outlives_a_move())
        .map(|reason| reason.as_str().to_owned())
        .collect()
}

fn provider_id(ended: &Ended) -> Option<String> {
    match &ended.outcome {
        Outcome::Sent { provider_id } => provider_id.clone(),
        Outcome::Refused { .. } | Outcome::NotSent { .. } | Outcome::Ambiguous { .. } => None,
    }
}

/// Records one result by the careful path: under the lock of its row, by the fold of everything that is known.
///
/// A result for an attempt that is not open under its token is kept as evidence. Returns `None` for an unknown intent.
///
/// # Errors
/// When Postgres does or a guard failed.
pub async fn record(
    conn: &mut PgConnection,
    finished: &Finished,
    policy: &Policy,
    actor: &str,
    at: Option<DateTime<Utc>>,
) -> Result<Option<Moved>, StoreError> {
    let Some(intent) = store::intents::lock(conn, finished.intent_id, at).await? else {
        super::orphans::keep(conn, finished).await?;
        return Ok(None);
    };
    let closed = store::attempts::close(
        conn,
        finished.intent_id,
        finished.attempt,
        finished.token,
        &finished.ended,
        finished.digest.as_deref(),
        intent.now,
        finished.lease_until,
    )
    .await?;
    if !closed {
        // A claim that was not committed is left alone: nothing was tried.
        let unstarted = matches!(finished.ended.outcome, Outcome::NotSent { proof: Proof::NotStarted, .. });
        if unstarted && !store::attempts::exists(conn, finished.intent_id, finished.attempt, finished.token).await? {
            return Ok(None);
        }
        keep_late(conn, finished, actor, at).await?;
    }
    if let Outcome::NotSent { proof, .. } = &finished.ended.outcome
        && proof.parks()
    {
        park(conn, finished).await?;
    }
    let Some(case) = Case::lock(conn, finished.intent_id, at).await? else { return Ok(None) };
    let mut cause = Cause::of(actor);
    cause.appended = 1;
    let not_before = not_before(&case, finished, policy);
    cause.not_before = Some(not_before);
    if case.attempt(finished.attempt).is_some_and(|a| a.attempt.kind == AttemptKind::Replay) {
        // A replay that settled nothing must not be followed by the next one at once.
        cause.ask_at = Some(not_before);
    }
    cause.detail = finished.ended.report.cause.clone();
    let mut moved = settle(conn, &case, policy, &cause).await?;
    if !closed {
        moved.met.push(FailureMode::StaleWorker);
    }
    Ok(Some(moved))
}

/// What arrived after its row had moved on, or for a row that we lack, is evidence and not rubbish.
async fn keep_late(
    conn: &mut PgConnection,
    finished: &Finished,
    actor: &str,
    at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    let told = EvidenceTold { token: Some(finished.token), ended: finished.ended.clone(), sighting: None };
    let entry = Entry {
        intent_id: Some(finished.intent_id),
        at,
        kind: "evidence",
        attempt: Some(finished.attempt),
        actor,
        data: serde_json::to_value(told).unwrap_or_else(|_| json!({})),
    };
    store::journal::append(conn, &entry).await?;
    Ok(())
}

/// Credentials refused: nothing more goes to this destination until somebody has looked.
async fn park(conn: &mut PgConnection, finished: &Finished) -> Result<(), StoreError> {
    let why = finished.ended.report.cause.clone().unwrap_or_else(|| "the downstream refuses us".to_owned());
    if store::generations::park(conn, &finished.destination, &why).await? {
        let summary = format!("{} is parked: {why}", finished.destination);
        store::escalations::raise_destination(conn, &finished.destination, Reason::DestinationParked, &summary).await?;
    }
    Ok(())
}

fn not_before(case: &Case, finished: &Finished, policy: &Policy) -> DateTime<Utc> {
    let retry_after = match &finished.ended.outcome {
        Outcome::NotSent { retry_after, proof } => {
            let replay = case.attempt(finished.attempt).is_some_and(|a| a.attempt.kind == AttemptKind::Replay);
            if matches!(proof, Proof::NotStarted | Proof::SelfStopped) && !replay {
                return case.intent.now;
            }
            *retry_after
        }
        Outcome::Sent { .. } | Outcome::Refused { .. } | Outcome::Ambiguous { .. } => None,
    };
    let count = u32::try_from(case.attempts.len()).unwrap_or(u32::MAX);
    let wait = backoff::delay(count, policy.backoff, policy.backoff_max, rand::random::<f64>(), retry_after);
    after(case.intent.now, wait)
}
