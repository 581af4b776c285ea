//! `/v1/intents`: ask for an effect, and ask how it stands.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{
    AppState,
    auth::Caller,
    openapi::refusals,
    problem::{Kind as ProblemKind, Problem},
    segments::Segments,
};
use crate::{
    domain::state::State as IntentState,
    store::{
        listing::{self, Filter, Receipt, Unserved},
        story::{self as stories, Story},
        tokens::{Kind, Principal},
    },
};

/// Longest time that a call waits for an intent to settle, seconds.
const LONGEST_WAIT: u64 = 30;

/// Longest Retry-After, seconds: a caller that comes back later than that learns nothing it could not have learnt before.
const LONGEST_RETRY: i64 = 3600;

/// Kinds that may read intents.
const READERS: [Kind; 3] = [Kind::Producer, Kind::Responder, Kind::Admin];

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// Seconds to wait for it to settle.
    #[param(minimum = 0, maximum = 30)]
    wait: Option<u64>,
}

/// One intent. In flight and unknown are ordinary answers: 200 with the state, and when to ask again.
#[utoipa::path(
    get, path = "/v1/intents/{id}", tag = "intents", operation_id = "show_intent",
    summary = "How an intent stands",
    description = "In flight and unknown are ordinary answers. With `wait` the call is answered when the intent has settled, or \
        nothing more can be expected in that time. A producer sees its own tenant only.",
    params(("id" = Uuid, Path, description = "The intent"), Wait),
    responses((status = 200, description = "The intent", body = Receipt, headers(
            ("Retry-After" = i64, description = "Seconds after which something may have changed; absent where it has settled")),
            example = json!({ "intent_id": "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e56", "tenant": "acme", "destination": "erp-orders",
            "reference": "ord-4711", "occurrence": 1, "state": "sent", "attempts": 1, "created_at": "2026-12-01T09:00:00Z",
            "due_at": "2026-12-01T09:00:00Z", "sent_at": "2026-12-01T09:00:01Z", "settled_at": "2026-12-01T09:00:01Z",
            "with_a_person": false, "version": 3 })),
        refusals::ReadingOne),
    security(("producer" = []), ("responder" = []), ("admin" = [])),
)]
pub(super) async fn show(
    State(state): State<AppState>,
    caller: Caller,
    Segments(id): Segments<String>,
    query: Result<Query<Wait>, QueryRejection>,
) -> Result<Response, Problem> {
    let reader = caller.must_be(&READERS)?;
    let id = intent_id(&id)?;
    let Query(Wait { wait }) = query.map_err(|e| wrong_query(&e))?;
    let wait = wait.unwrap_or(0);
    if wait > LONGEST_WAIT {
        return Err(Problem::field(ProblemKind::Invalid, "wait", format!("must be 0 to {LONGEST_WAIT} seconds")));
    }
    let receipt = wait_for(&state, id, reader.tenant.as_deref(), Duration::from_secs(wait)).await?;
    Ok(answer(&receipt))
}

/// Reads the row until it is settled, or nothing more can be expected in the time that is left.
async fn wait_for(state: &AppState, id: Uuid, tenant: Option<&str>, wait: Duration) -> Result<Receipt, Problem> {
    let until = tokio::time::Instant::now() + wait;
    // A place among those who wait, or none: then the call is answered at once.
    let place = if wait.is_zero() { None } else { state.waiters.try_acquire().ok() };
    let mut pause = Duration::from_millis(25);
    loop {
        let receipt = {
            let mut conn = state.pool.acquire().await?;
            listing::receipt(&mut conn, id, tenant).await?.ok_or_else(|| not_found(id))?
        };
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        if place.is_none() || left.is_zero() || !moves_within(&receipt, left) {
            return Ok(receipt);
        }
        tokio::select! {
            () = tokio::time::sleep(pause.min(left)) => {}
            () = state.shutdown.stopping() => return Ok(receipt),
        }
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
    }
}

/// Whether it could still move in that time.
fn moves_within(receipt: &Receipt, left: Duration) -> bool {
    match IntentState::parse(&receipt.state) {
        Some(IntentState::Pending | IntentState::InFlight) => true,
        Some(IntentState::Unknown) => {
            receipt.next_in.and_then(|seconds| u64::try_from(seconds).ok()).is_some_and(|s| s <= left.as_secs())
        }
        Some(
            IntentState::Held
            | IntentState::Sent
            | IntentState::Failed
            | IntentState::Cancelled
            | IntentState::Abandoned,
        )
        | None => false,
    }
}

/// A receipt, and when to ask again where something is still going on.
fn answer(receipt: &Receipt) -> Response {
    let mut response = Json(receipt).into_response();
    let settled = IntentState::parse(&receipt.state).is_some_and(IntentState::is_settled);
    if !settled {
        let seconds = receipt.next_in.unwrap_or(60).clamp(1, LONGEST_RETRY);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Listed {
    /// Only this reference.
    reference: Option<String>,
    /// Only this state.
    #[param(value_type = Option<IntentState>)]
    state: Option<String>,
    /// Only this destination.
    destination: Option<String>,
    /// Only this tenant; a token of one tenant may name its own only.
    tenant: Option<String>,
    /// Only older ones: `next` of the page before.
    before: Option<Uuid>,
    /// At most so many.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<i64>,
}

/// A page of intents.
#[derive(Serialize, ToSchema)]
#[schema(as = IntentPage)]
struct Page {
    /// Newest first.
    intents: Vec<Receipt>,
    /// `before` of the following page; none where this is the last.
    next: Option<Uuid>,
}

/// Intents, newest first. `next` is the `before` of the following page.
#[utoipa::path(
    get, path = "/v1/intents", tag = "intents", operation_id = "list_intents",
    summary = "Intents, newest first",
    description = "A page at a time. A producer sees its own tenant only.",
    params(Listed),
    responses((status = 200, description = "A page", body = Page), refusals::Reading),
    security(("producer" = []), ("responder" = []), ("admin" = [])),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    query: Result<Query<Listed>, QueryRejection>,
) -> Result<Response, Problem> {
    let reader = caller.must_be(&READERS)?;
    let Query(listed) = query.map_err(|e| wrong_query(&e))?;
    let limit = listed.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem::field(ProblemKind::Invalid, "limit", "must be 1 to 200"));
    }
    if let Some(word) = &listed.state
        && IntentState::parse(word).is_none()
    {
        return Err(Problem::field(ProblemKind::Invalid, "state", "must be the name of a state"));
    }
    let tenant = tenant_of(reader, listed.tenant.as_deref())?;
    let filter = Filter {
        reference: listed.reference.as_deref(),
        state: listed.state.as_deref(),
        destination: listed.destination.as_deref(),
        tenant: tenant.as_deref(),
        before: listed.before,
        limit,
    };
    let mut conn = state.pool.acquire().await?;
    let intents = listing::list(&mut conn, &filter).await?;
    let full = usize::try_from(limit).is_ok_and(|limit| intents.len() == limit);
    let next = intents.last().filter(|_| full).map(|last| last.intent_id);
    Ok(Json(Page { intents, next }).into_response())
}

/// The only tenant of the token, or the one that is asked for.
fn tenant_of(reader: &Principal, asked: Option<&str>) -> Result<Option<String>, Problem> {
    match (&reader.tenant, asked) {
        (Some(own), Some(asked)) if own != asked => {
            Err(Problem::new(ProblemKind::Forbidden, format!("this token sees tenant {own} only")))
        }
        (Some(own), _) => Ok(Some(own.clone())),
        (None, asked) => Ok(asked.map(str::to_owned)),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Requests {
    /// Must be `true`: served calls are read by their intent.
    unserved: bool,
    /// Only this reference.
    reference: Option<String>,
    /// Only this destination.
    destination: Option<String>,
    /// Only this tenant; a token of one tenant may name its own only.
    tenant: Option<String>,
    /// Only older ones: `next` of the page before.
    before: Option<Uuid>,
    /// At most so many.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<i64>,
}

/// A page of calls.
#[derive(Serialize, ToSchema)]
#[schema(as = UnservedPage)]
struct Calls {
    /// Newest first.
    requests: Vec<Unserved>,
    /// `before` of the following page; none where this is the last.
    next: Option<Uuid>,
}

/// Calls whose intent ended without effect, newest first: what a caller must read to learn that its wish came to nothing.
#[utoipa::path(
    get, path = "/v1/requests", tag = "intents", operation_id = "list_unserved",
    summary = "Calls whose intent ended without effect, newest first",
    description = "What a caller must read to learn that its wish came to nothing.",
    params(Requests),
    responses((status = 200, description = "A page", body = Calls), refusals::Reading),
    security(("producer" = []), ("responder" = []), ("admin" = [])),
)]
pub(super) async fn unserved(
    State(state): State<AppState>,
    caller: Caller,
    query: Result<Query<Requests>, QueryRejection>,
) -> Result<Response, Problem> {
    let reader = caller.must_be(&READERS)?;
    let Query(asked) = query.map_err(|e| wrong_query(&e))?;
    if !asked.unserved {
        return Err(Problem::field(
            ProblemKind::Invalid,
            "unserved",
            "must be true; served calls are read by their intent",
        ));
    }
    let limit = asked.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem::field(ProblemKind::Invalid, "limit", "must be 1 to 200"));
    }
    let tenant = tenant_of(reader, asked.tenant.as_deref())?;
    let filter = Filter {
        reference: asked.reference.as_deref(),
        state: None,
        destination: asked.destination.as_deref(),
        tenant: tenant.as_deref(),
        before: asked.before,
        limit,
    };
    let mut conn = state.pool.acquire().await?;
    let requests = listing::unserved(&mut conn, &filter).await?;
    let full = usize::try_from(limit).is_ok_and(|limit| requests.len() == limit);
    let next = requests.last().filter(|_| full).map(|last| last.request_id);
    Ok(Json(Calls { requests, next }).into_response())
}

/// Everything that is known about one intent; for people only, since it quotes what downstreams answered.
#[utoipa::path(
    get, path = "/v1/intents/{id}/story", tag = "intents", operation_id = "story",
    summary = "Everything that is known about an intent, in the order it happened",
    description = "For people only, since it quotes what downstreams answered. Recipient and payload are not part of it.",
    params(("id" = Uuid, Path, description = "The intent")),
    responses((status = 200, description = "The story", body = Story), refusals::ReadingOne),
    security(("responder" = []), ("admin" = [])),
)]
pub(super) async fn story(
    State(state): State<AppState>,
    caller: Caller,
    Segments(id): Segments<String>,
) -> Result<Response, Problem> {
    let person = caller.must_be_person()?;
    let id = intent_id(&id)?;
    let mut conn = state.pool.acquire().await?;
    let story = stories::story(&mut conn, id, person.tenant.as_deref()).await?.ok_or_else(|| not_found(id))?;
    Ok(Json(story).into_response())
}

pub(super) fn intent_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| Problem::field(ProblemKind::Invalid, "id", "must be the id of an intent (UUID)"))
}

fn not_found(id: Uuid) -> Problem {
    Problem::new(ProblemKind::NotFound, format!("there is no intent {id} that this token may see"))
}

pub(super) fn wrong_query(error: &QueryRejection) -> Problem {
    Problem::new(ProblemKind::Invalid, error.body_text())
}
