//! `POST /v1/intents` and its withdrawal: ask for an effect, take the wish back.
//!
//! The payload is handed on as the text that was given; parsing it here would lose digits and members that are there twice.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    AppState,
    auth::Caller,
    body, escalations,
    intents::intent_id,
    openapi::{
        bodies::{Call, Cancellation, Withdrawal},
        refusals,
    },
    problem::{Kind as ProblemKind, Problem},
    segments::Segments,
};
use crate::{
    engine::{admission, resolution::Target},
    store::{
        requests::{self, NewRequest, Options, Verdict},
        tokens::{Kind, Principal},
    },
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// One wish for one effect.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
#[schema(as = BulkCall)]
pub(super) struct Asked<'a> {
    /// Name of the destination.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9][a-z0-9._-]*$")]
    destination: String,
    /// Business name of the effect; compared in lower case. `:` only where the destination is asked by key; a destination
    /// may narrow it.
    #[schema(min_length = 1, max_length = 120, pattern = "^[A-Za-z0-9._:-]+$")]
    reference: String,
    /// What is sent: kept and sent as it was given. Its members are those of the channel; at most 256 KiB, 4,096 values and 32
    /// levels, no name twice.
    #[serde(borrow)]
    #[schema(value_type = HashMap<String, Value>)]
    payload: &'a RawValue,
    /// The run of the agent or program; with `step` the identity of the call. Must not begin with `key:`.
    #[schema(min_length = 1, max_length = 200, pattern = "^[!-~]+$")]
    run_id: Option<String>,
    /// Position in the run. Both are given, or neither and an `Idempotency-Key`.
    #[schema(minimum = 0)]
    step: Option<i64>,
    /// Names one effect of several in a step.
    #[schema(max_length = 320, pattern = r"^[^\u0000-\u001f\u007f]*$")]
    slot: Option<String>,
    /// 2, 3, … for a wanted repeat.
    #[schema(minimum = 1, maximum = 1000)]
    occurrence: Option<i32>,
    /// Not sent before.
    #[serde(default, deserialize_with = "body::instant")]
    due_at: Option<DateTime<Utc>>,
    /// No attempt after; later than `due_at`.
    #[serde(default, deserialize_with = "body::instant")]
    deadline: Option<DateTime<Utc>>,
    /// Who told the caller to.
    #[serde(borrow)]
    #[schema(value_type = Option<HashMap<String, String>>)]
    instructed_by: Option<&'a RawValue>,
    /// W3C trace context.
    #[schema(pattern = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")]
    traceparent: Option<String>,
    /// The identity where no run and step are given. Alone it is the header of that name.
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    pub(super) idempotency_key: Option<String>,
}

impl Asked<'_> {
    /// The call as the ledger takes it. Tenant and principal come from the token.
    pub(super) fn request(self, producer: &Principal, caller_key: Option<String>) -> Result<NewRequest, Problem> {
        let instructed_by = match self.instructed_by {
            Some(text) => {
                body::refuse_duplicates(text.get(), "/instructed_by")?;
                serde_json::from_str(text.get())
                    .map_err(|e| Problem::field(ProblemKind::Malformed, "/instructed_by", e.to_string()))?
            }
            None => None,
        };
        Ok(NewRequest {
            destination: self.destination,
            reference: self.reference,
            payload: self.payload.get().to_owned(),
            run_id: self.run_id,
            step: self.step,
            options: Options {
                slot: self.slot,
                occurrence: self.occurrence,
                due_at: self.due_at,
                deadline: self.deadline,
                instructed_by,
                traceparent: self.traceparent,
                tenant: producer.tenant.clone(),
                caller_key,
                principal: Some(producer.name.clone()),
                surface: Some("http".to_owned()),
            },
        })
    }
}

/// Asks for an effect. 201 accepted; 200 where the effect is wanted already, by this call or another.
#[utoipa::path(
    post, path = "/v1/intents", tag = "intents", operation_id = "enqueue",
    summary = "Ask for an effect",
    description = "An answer means that the effect has happened or still may; everything else is a problem and nothing was \
        enqueued. The identity of the call is `run_id` and `step` (and `slot`), or the `Idempotency-Key`; the tenant is that \
        of the token.",
    params(("Idempotency-Key" = Option<String>, Header,
        description = "The identity where no run and step are given: 1 to 255 visible ASCII characters, bare or quoted.",
        min_length = 1, max_length = 255, pattern = "^[!-~]+$", example = "checkout-4711")),
    request_body = Call,
    responses(
        (status = 201, description = "Accepted: a new intent", body = requests::Receipt, headers(
            ("Location" = String, description = "Path of the intent"),
            ("Idempotency-Key" = String, description = "The caller's own, where one was given")),
            example = json!({
            "verdict": "accepted", "intent_id": "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e56", "state": "pending",
            "provider_id": null, "sent_at": null, "detail": null })),
        (status = 200, description = "The same call again (`replayed`), or another call for the same effect (`already_requested`)",
            body = requests::Receipt, headers(
            ("Location" = String, description = "Path of the intent"),
            ("Idempotent-Replayed" = String, description = "`true` where the same call is answered again"),
            ("Idempotency-Key" = String, description = "The caller's own, where one was given")),
            example = json!({
            "verdict": "already_requested", "intent_id": "0195f1a2-7c3e-7b11-8d4e-2f6a9c0b1e56", "state": "sent",
            "provider_id": "wamid.1", "sent_at": "2026-12-01T09:00:00Z", "detail": null })),
        refusals::Enqueueing),
    security(("producer" = [])),
)]
pub(super) async fn enqueue(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let answer = ask(&state, &caller, &headers, body).await;
    let word = match &answer {
        Ok((verdict, _)) => verdict.as_str(),
        Err(problem) => problem.kind().name(),
    };
    state.metrics.enqueue("http", word);
    answer.map(|(_, response)| response)
}

async fn ask(
    state: &AppState,
    caller: &Caller,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Verdict, Response), Problem> {
    let producer = caller.must_be(&[Kind::Producer])?;
    let key = caller_key(headers)?;
    let bytes = body::read(headers, body).await?;
    let asked = body::parse::<Asked<'_>>(&bytes)?;
    if asked.idempotency_key.is_some() {
        return Err(Problem::field(ProblemKind::Malformed, "/idempotency_key", "is the header Idempotency-Key here"));
    }
    let request = asked.request(producer, key)?;
    let answer = admission::admit(&state.pool, &request).await;
    if let Some(mode) = admission::met(&answer) {
        state.metrics.failure_mode(mode);
    }
    let receipt = answer?;
    if receipt.verdict == Verdict::Accepted {
        state.metrics.moved(&receipt.state, "producer");
        state.wake.notify_waiters();
    }
    let status = match receipt.verdict {
        Verdict::Accepted => StatusCode::CREATED,
        Verdict::Replayed | Verdict::AlreadyRequested => StatusCode::OK,
    };
    let mut response = (status, Json(&receipt)).into_response();
    let set = response.headers_mut();
    if receipt.verdict == Verdict::Replayed {
        set.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/intents/{}", receipt.intent_id)) {
        set.insert(header::LOCATION, location);
    }
    if let Some(value) = headers.get(&IDEMPOTENCY_KEY) {
        set.insert(IDEMPOTENCY_KEY, value.clone());
    }
    Ok((receipt.verdict, response))
}

/// The `Idempotency-Key`: bare, or a quoted string as the expired draft wanted it.
fn caller_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |rule: &str| Problem::field(ProblemKind::Invalid, "Idempotency-Key", rule);
    if values.next().is_some() {
        return Err(wrong("must be there once"));
    }
    let text = value.to_str().map_err(|_| wrong("must be visible ASCII"))?.trim();
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    if !(1..=255).contains(&bare.len()) || !bare.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(wrong("must be 1 to 255 visible ASCII characters"));
    }
    Ok(Some(bare.to_owned()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Withdrawn {
    reason: String,
}

/// A producer withdraws an intent that was never attempted. For a person it is an act like any other, under their own name.
#[utoipa::path(
    post, path = "/v1/intents/{id}/cancel", tag = "intents", operation_id = "cancel",
    summary = "Withdraw an intent",
    description = "By a producer only what was never attempted. For a person it is the act `cancel`, which needs the version \
        that was seen.",
    params(("id" = Uuid, Path, description = "The intent"),
        ("If-Match" = Option<i64>, Header, description = "People only: the version that was seen, instead of `version`",
            example = 3)),
    request_body = Cancellation,
    responses((status = 200, description = "Withdrawn, or what the act has led to", body = Withdrawal), refusals::Cancelling),
    security(("producer" = []), ("responder" = []), ("admin" = [])),
)]
pub(super) async fn cancel(
    State(state): State<AppState>,
    caller: Caller,
    Segments(id): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id = intent_id(&id)?;
    if let Ok(person) = caller.must_be_person() {
        return escalations::act(&state, person, Target::Intent(id), "cancel", &headers, body).await;
    }
    let principal = caller.must_be(&[Kind::Producer])?;
    let bytes = body::read(&headers, body).await?;
    let Withdrawn { reason } = body::parse(&bytes)?;
    let cancelled = admission::cancel(&state.pool, id, &reason, principal.tenant.as_deref(), &principal.name).await;
    state.metrics.act("cancel", if cancelled.is_ok() { "applied" } else { "refused" });
    let now = cancelled?;
    state.metrics.moved(&now, "producer");
    Ok(Json(json!({ "intent_id": id, "state": now })).into_response())
}
