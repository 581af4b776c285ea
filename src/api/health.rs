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
use http::{StatusCode, header};
use serde_json::json;

use super::{
    AppState,
    auth::Caller,
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
};

/// Progress of the loops. Never asks the database: restarting daemons does not bring Postgres back.
pub(super) async fn live(State(state): State<AppState>) -> Response {
    let loops = state.progress.states();
    let stuck = loops.iter().any(|l| l.stuck);
    let status = if stuck { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(json!({ "alive": !stuck, "loops": loops }))).into_response()
}

/// Whether calls can be served: the ledger answers a query to this role and takes writes, and nothing is stopping.
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
    let body = json!({
        "ready": ready,
        "ledger": told,
        "stopping": stopping,
        // Calls are served meanwhile: what they ask for is asked about first.
        "quarantine": ledger.as_ref().ok().and_then(|(_, open)| open.last()).map(quarantine),
        "dedupe_window_hours": hours(state.windows.keys),
    });
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body)).into_response()
}

/// What anybody may know of a rewind that is not settled.
fn quarantine(rewind: &Rewind) -> serde_json::Value {
    json!({
        "rewind": rewind.number,
        "noticed_at": rewind.noticed_at,
        "nothing_claimed_before": rewind.quiet_until,
        "asked_first_until": rewind.ask_first_until,
        "waits_for_a_person": rewind.needs_person && rewind.lifted_at.is_none(),
    })
}

/// OpenMetrics text, for metrics and admin tokens. What the ledger must count is counted here, at most every ten seconds:
/// nobody pays for numbers that nobody reads.
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
