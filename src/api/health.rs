//! `/livez`, `/readyz`, `/metrics`.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{StatusCode, header};
use serde::Serialize;

use super::{
    AppState,
    auth::Caller,
    openapi::refusals,
    problem::{Kind as ProblemKind, Problem},
};
use crate::{
    config::retention::hours,
    domain::reason::Reason,
    store::{
        error::StoreError,
        listing,
        rewinds::{self, Rewind},
        tokens::Kind,
    },
    telemetry::progress::LoopState,
};

/// Whether the loops make progress.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({ "alive": true, "loops": [{ "name": "dispatcher", "seconds_ago": 0, "stuck": false }] }))]
pub(super) struct Liveness {
    /// No loop is stuck.
    pub(super) alive: bool,
    /// The loops of this process.
    pub(super) loops: Vec<LoopState>,
}

/// Whether calls can be served.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({ "ready": true, "ledger": "ok", "stopping": false, "dedupe_window_hours": 4320 }))]
pub(super) struct Readiness {
    /// They can.
    ready: bool,
    /// What the ledger does: `ok`, `only reads`, `does not answer`; or what is done to it before the start.
    ledger: &'static str,
    /// The daemon has only begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    starting: Option<bool>,
    /// The daemon is about to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopping: Option<bool>,
    /// The database lost history, and what it lost is not settled yet.
    quarantine: Option<Quarantine>,
    /// How long a repeat is recognised, hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_window_hours: Option<u64>,
}

impl Readiness {
    /// Before the daemon has begun.
    pub(super) fn starting(ledger: &'static str) -> Self {
        Self { ready: false, ledger, starting: Some(true), stopping: None, quarantine: None, dedupe_window_hours: None }
    }
}

/// What anybody may know of a rewind that is not settled.
#[derive(Serialize, utoipa::ToSchema)]
struct Quarantine {
    /// 1, 2, …
    rewind: i32,
    /// When it was noticed.
    noticed_at: DateTime<Utc>,
    /// Nothing is claimed before.
    nothing_claimed_before: DateTime<Utc>,
    /// New intents are asked about first until then.
    asked_first_until: DateTime<Utc>,
    /// Nothing is sent until a person says that this copy may.
    waits_for_a_person: bool,
}

impl From<&Rewind> for Quarantine {
    fn from(rewind: &Rewind) -> Self {
        Self {
            rewind: rewind.number,
            noticed_at: rewind.noticed_at,
            nothing_claimed_before: rewind.quiet_until,
            asked_first_until: rewind.ask_first_until,
            waits_for_a_person: rewind.needs_person && rewind.lifted_at.is_none(),
        }
    }
}

/// Progress of the loops. Never asks the database: restarting daemons does not bring Postgres back.
#[utoipa::path(
    get, path = "/livez", tag = "health", operation_id = "livez",
    summary = "Whether the process makes progress",
    description = "For the supervisor that restarts it. The ledger is not asked: restarting does not bring Postgres back.",
    responses((status = 200, description = "Every loop makes progress", body = Liveness),
        (status = 503, description = "A loop is stuck", body = Liveness)),
    security(()),
)]
pub(super) async fn live(State(state): State<AppState>) -> Response {
    let loops = state.progress.states();
    let stuck = loops.iter().any(|l| l.stuck);
    let status = if stuck { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(Liveness { alive: !stuck, loops })).into_response()
}

/// Whether calls can be served: the ledger answers a query to this role and takes writes, and nothing is stopping.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "readyz",
    summary = "Whether calls can be served",
    description = "The ledger answers and takes writes, and the daemon is neither starting nor stopping.",
    responses((status = 200, description = "They can", body = Readiness), (status = 503, description = "Not now", body = Readiness)),
    security(()),
)]
pub(super) async fn ready(State(state): State<AppState>) -> Response {
    let stopping = state.shutdown.is_stopping();
    let ledger = async {
        let mut conn = state.pool.acquire().await?;
        let writable = listing::ping(&mut conn).await?;
        Ok::<_, StoreError>((writable, rewinds::open(&mut conn).await?))
    }
    .await;
    let (writable, told) = match &ledger {
        Ok((true, _)) => (true, "ok"),
        Ok((false, _)) => (false, "only reads"),
        Err(error) => {
            tracing::warn!(%error, "not ready: the ledger does not answer");
            (false, "does not answer")
        }
    };
    let ready = writable && !stopping;
    let body = Readiness {
        ready,
        ledger: told,
        starting: None,
        stopping: Some(stopping),
        // Calls are served meanwhile: what they ask for is asked about first.
        quarantine: ledger.as_ref().ok().and_then(|(_, open)| open.last()).map(Quarantine::from),
        dedupe_window_hours: Some(hours(state.windows.keys)),
    };
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body)).into_response()
}

/// OpenMetrics text, for metrics and admin tokens. What the ledger must count is counted here, at most every ten seconds:
/// nobody pays for numbers that nobody reads.
#[utoipa::path(
    get, path = "/metrics", tag = "health", operation_id = "metrics",
    summary = "Numbers, as OpenMetrics text",
    description = "Counters, gauges and histograms of this process and of the ledger; the ledger is counted at most every ten seconds.",
    responses((status = 200, description = "The numbers", body = String, content_type = "application/openmetrics-text"),
        refusals::Counting),
    security(("metrics" = []), ("admin" = [])),
)]
pub(super) async fn metrics(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    caller.must_be(&[Kind::Metrics, Kind::Admin])?;
    if state.counted.due(state.clock.boot()) {
        match tokio::time::timeout(COUNT_LIMIT, count(&state)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the gauges about the ledger are old"),
            Err(_) => tracing::warn!("the gauges about the ledger are old: counting took too long"),
        }
    }
    let now = state.clock.now().timestamp_micros() as f64 / 1e6;
    for one in state.progress.states() {
        state.metrics.loop_tick(one.name, now - one.ago.as_secs_f64());
    }
    let text =
        state.metrics.text().map_err(|_| Problem::new(ProblemKind::Internal, "the numbers could not be written"))?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}

/// Longest time for counting.
const COUNT_LIMIT: Duration = Duration::from_secs(3);

/// When the ledger was counted last.
#[derive(Debug, Default)]
pub struct Counted(Mutex<Option<Duration>>);

impl Counted {
    /// True once in ten seconds.
    fn due(&self, now: Duration) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|at| now.saturating_sub(at) >= Duration::from_secs(10));
        if due {
            *last = Some(now);
        }
        due
    }
}

async fn count(state: &AppState) -> Result<(), StoreError> {
    let mut conn = state.pool.acquire().await?;
    let health = listing::health(&mut conn).await?;
    let m = &state.metrics;
    m.queue_depth(&health.queue);
    m.unknown(&health.unknown);
    let open = |reason: &str| health.escalations.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count);
    // Every reason is exported, also with nobody waiting: an alert on a missing series never fires.
    let all: Vec<(String, i64)> =
        Reason::ALL.into_iter().map(|reason| (reason.as_str().to_owned(), open(reason.as_str()))).collect();
    m.escalations_open(&all);
    let paused = |scope: &str| health.pauses.iter().find(|(name, _)| name == scope).map_or(0, |(_, count)| *count);
    m.pauses(&["all", "destination", "tenant"].map(|scope| (scope.to_owned(), paused(scope))));
    for (destination, parked) in &health.parked {
        m.parked(destination, *parked);
    }
    Ok(())
}
