//! `POST /v1/intents` and its withdrawal: ask for an effect, take the wish back.
//!
//! The payload is handed on as the text that was given; parsing it here would lose digits and members that are there twice.

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
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
    problem::{Kind as ProblemKind, Problem},
};
use crate::{
    engine::{admission, resolution::Target},
    store::{
        requests::{NewRequest, Options, Verdict},
        tokens::{Kind, Principal},
    },
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked<'a> {
    destination: String,
    reference: String,
    #[serde(borrow)]
    payload: &'a RawValue,
    run_id: Option<String>,
    step: Option<i64>,
    slot: Option<String>,
    occurrence: Option<i32>,
    due_at: Option<DateTime<Utc>>,
    deadline: Option<DateTime<Utc>>,
    #[serde(borrow)]
    instructed_by: Option<&'a RawValue>,
    traceparent: Option<String>,
}

impl Asked<'_> {
    /// The call as the ledger takes it. Tenant and principal come from the token.
    fn request(self, producer: &Principal, caller_key: Option<String>) -> Result<NewRequest, Problem> {
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
    let request = body::parse::<Asked<'_>>(&bytes)?.request(producer, key.clone())?;
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
pub(super) async fn cancel(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<String>,
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
