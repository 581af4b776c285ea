//! `POST /v1/sightings/{destination}`: what a downstream reports by itself. Its token is good for this and for one destination.

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::{
    AppState,
    auth::Caller,
    body,
    problem::{Kind as ProblemKind, Problem},
};
use crate::{
    engine::sightings::{self, Taken},
    store::tokens::Kind,
};

/// Most reports that are taken from one call.
const MOST: usize = 1000;

pub(super) async fn take(
    State(state): State<AppState>,
    caller: Caller,
    Path(destination): Path<String>,
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
    let (mut taken, mut repeated, mut unexplained, mut ignored) = (0, 0, 0, 0);
    for receipt in &receipts {
        let clock = &*state.clock;
        match sightings::take(&state.pool, fleet, clock, &state.metrics, &destination, receipt, &reporter.token).await?
        {
            Taken::Evidence(_) | Taken::Kept(_) => taken += 1,
            Taken::Repeated => repeated += 1,
            Taken::Orphan => unexplained += 1,
            Taken::NotOurs => ignored += 1,
        }
    }
    let counts = json!({ "taken": taken, "repeated": repeated, "unexplained": unexplained, "ignored": ignored });
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
