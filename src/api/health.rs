//! `/livez`, `/readyz`, `/metrics`.

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
    store::{listing, tokens::Kind},
};

/// Progress of the loops. Never asks the database: restarting daemons does not bring Postgres back.
pub(super) async fn live(State(state): State<AppState>) -> Response {
    let loops = state.progress.states();
    let stuck = loops.iter().any(|l| l.stuck);
    let status = if stuck { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, Json(json!({ "alive": !stuck, "loops": loops }))).into_response()
}

/// Whether calls can be served: the ledger answers a query to this role, and nothing is stopping.
pub(super) async fn ready(State(state): State<AppState>) -> Response {
    let stopping = state.shutdown.is_stopping();
    let ledger = async {
        let mut conn = state.pool.acquire().await?;
        listing::ping(&mut conn).await
    }
    .await;
    if let Err(error) = &ledger {
        tracing::warn!(%error, "not ready: the ledger does not answer");
    }
    let ready = ledger.is_ok() && !stopping;
    let body = json!({
        "ready": ready,
        "ledger": if ledger.is_ok() { "ok" } else { "does not answer" },
        "stopping": stopping,
        "dedupe_window_hours": hours(state.windows.keys),
    });
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body)).into_response()
}

/// OpenMetrics text, for metrics and admin tokens.
pub(super) async fn metrics(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    caller.must_be(&[Kind::Metrics, Kind::Admin])?;
    let text =
        state.metrics.text().map_err(|_| Problem::new(ProblemKind::Internal, "the numbers could not be written"))?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response())
}
