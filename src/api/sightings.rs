//! `POST /v1/sightings/{destination}`: what a downstream reports by itself. Its token is good for this and for one destination.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, header};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    AppState,
    auth::Caller,
    body,
    openapi::refusals,
    problem::{Kind as ProblemKind, Problem},
    segments::Segments,
};
use crate::{
    engine::sightings::{self, Taken},
    store::tokens::Kind,
};

/// Most reports that are taken from one call.
const MOST: usize = 1000;

/// What became of the reports of one call.
#[derive(Default, Serialize, utoipa::ToSchema)]
#[schema(as = Reports, example = json!({ "taken": 1, "repeated": 0, "unexplained": 0, "ignored": 0 }))]
pub(super) struct Counts {
    /// Written down as evidence.
    taken: u32,
    /// Known already.
    repeated: u32,
    /// With a key of ours that no row explains; a person is asked.
    unexplained: u32,
    /// Without a key of ours.
    ignored: u32,
}

/// Takes what a downstream reports.
#[utoipa::path(
    post, path = "/v1/sightings/{destination}", tag = "reports", operation_id = "report",
    summary = "Report what became of effects",
    description = "For downstreams: delivery receipts and the like, as JSON or as a form. Where key, status and time stand is \
        said by `[destinations.sightings]`; at most 1,000 reports in one call. A token of kind `downstream` reports for its own \
        destination only.",
    params(("destination" = String, Path, description = "Name of the destination", example = "alerts-sms")),
    request_body(description = "Whatever the downstream sends; a form counts as an object of strings", content(
        (Value = "application/json", example = json!({ "client_reference": "0f8c5a5e0f8c5a5e0f8c5a5e0f8c5a5e", "status": "delivered" })),
        (HashMap<String, String> = "application/x-www-form-urlencoded"))),
    responses((status = 200, description = "How many were taken", body = Counts), refusals::Reporting),
    security(("downstream" = []), ("downstream_basic" = []), ("admin" = [])),
)]
pub(super) async fn take(
    State(state): State<AppState>,
    caller: Caller,
    Segments(destination): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let reporter = caller.must_be(&[Kind::Downstream, Kind::Admin])?;
    if reporter.kind == Kind::Downstream && reporter.name != destination {
        return Err(Problem::new(ProblemKind::Forbidden, "this token reports for another destination"));
    }
    let fleet = state.fleet.as_ref().ok_or_else(|| Problem::new(ProblemKind::NotFound, "nothing is served here"))?;
    let nothing = || Problem::new(ProblemKind::NotFound, "this destination takes no reports: it has no [sightings]");
    let served = fleet.get(&destination).ok_or_else(nothing)?;
    let mapping = served.config.sightings.as_ref().ok_or_else(nothing)?;
    let told = told(&headers, body).await?;
    let receipts = sightings::read(mapping, &told, state.clock.now());
    if receipts.is_empty() {
        return Err(Problem::new(
            ProblemKind::Invalid,
            "no report was found where key_at and status_at of this destination point to",
        ));
    }
    if receipts.len() > MOST {
        return Err(Problem::new(ProblemKind::TooLarge, format!("more than {MOST} reports in one call")));
    }
    let mut counts = Counts::default();
    for receipt in &receipts {
        let clock = &*state.clock;
        match sightings::take(&state.pool, fleet, clock, &state.metrics, &destination, receipt, &reporter.token).await?
        {
            Taken::Evidence(_) | Taken::Kept(_) => counts.taken += 1,
            Taken::Repeated => counts.repeated += 1,
            Taken::Orphan => counts.unexplained += 1,
            Taken::NotOurs => counts.ignored += 1,
        }
    }
    Ok(Json(counts).into_response())
}

/// JSON as it is; a form as an object of strings, since many providers report so.
async fn told(headers: &HeaderMap, body: Body) -> Result<Value, Problem> {
    let form = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|media| media.trim_start().to_ascii_lowercase().starts_with("application/x-www-form-urlencoded"));
    if !form {
        let bytes = body::read(headers, body).await?;
        return body::parse(&bytes);
    }
    let bytes = body::collect(body).await?;
    let members: Map<String, Value> = url::form_urlencoded::parse(&bytes)
        .map(|(name, value)| (name.into_owned(), Value::from(value.into_owned())))
        .collect();
    Ok(Value::Object(members))
}
