//! `POST /v1/intents/bulk`: up to 1,000 effects in one call and one transaction, all or nothing or each for itself.
//!
//! Items have the members of `POST /v1/intents`; an `Idempotency-Key` is the member `idempotency_key` here.

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    AppState,
    asking::Asked,
    auth::Caller,
    body,
    openapi::{bodies::BulkAnswer, refusals},
    problem::{Kind as ProblemKind, Problem},
};
use crate::{
    engine::admission,
    store::{
        bulk::{BulkError, MAX_BYTES, MAX_ITEMS, Mode, unreadable},
        requests::{NewRequest, Receipt, Verdict},
        tokens::{Kind, Principal},
    },
};

/// Many wishes in one call and one transaction.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "mode": "per_item", "items": [
    { "destination": "erp-orders", "reference": "ord-4711", "run_id": "checkout-4711", "step": 1, "payload": { "order": 4711 } },
    { "destination": "erp-orders", "reference": "ord-4712", "idempotency_key": "checkout-4712", "payload": { "order": 4712 } },
] }))]
pub(super) struct Batch<'a> {
    /// What one refused item means for the others.
    #[serde(default)]
    mode: Mode,
    /// The calls, decided one after another.
    #[serde(borrow)]
    #[schema(value_type = Vec<Asked>, min_items = 1, max_items = 1000)]
    items: Vec<&'a RawValue>,
}

/// What became of each item, in their order.
type Answers = Vec<Result<Receipt, Problem>>;

/// Asks for many effects. 200 with an answer for each; 422 where all or nothing was asked and nothing was enqueued.
#[utoipa::path(
    post, path = "/v1/intents/bulk", tag = "intents", operation_id = "enqueue_many",
    summary = "Ask for many effects",
    description = "Up to 1,000 items and 8 MiB. All or nothing (the default): 422 `batch_refused` with the refused `items`, and \
        nothing was enqueued. For each itself (`per_item`): 200, with the `status` that a call of its own would have had.",
    request_body = Batch,
    responses((status = 200, description = "An answer for each item, in their order", body = BulkAnswer), refusals::EnqueueingMany),
    security(("producer" = [])),
)]
pub(super) async fn enqueue(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let producer = caller.must_be(&[Kind::Producer])?;
    let bytes = body::read_up_to(MAX_BYTES, &headers, body).await?;
    let batch = body::parse::<Batch<'_>>(&bytes)?;
    if !(1..=MAX_ITEMS).contains(&batch.items.len()) {
        return Err(Problem::field(ProblemKind::Invalid, "/items", format!("must hold 1 to {MAX_ITEMS} items")));
    }
    let answers = ask(&state, producer, &batch).await?;
    let mut accepted = 0;
    for answer in &answers {
        state.metrics.enqueue("http", answer.as_ref().map_or_else(|p| p.kind().name(), |r| r.verdict.as_str()));
        if let Some(receipt) = answer.as_ref().ok().filter(|receipt| receipt.verdict == Verdict::Accepted) {
            state.metrics.moved(&receipt.state, "producer");
            accepted += 1;
        }
    }
    if accepted > 0 {
        state.wake.notify_waiters();
    }
    let refused = answers.iter().filter(|answer| answer.is_err()).count();
    let items: Vec<Value> = answers.iter().enumerate().map(|(index, answer)| item(index, answer)).collect();
    Ok(Json(BulkAnswer { accepted, refused, items }).into_response())
}

async fn ask(state: &AppState, producer: &Principal, batch: &Batch<'_>) -> Result<Answers, Problem> {
    let mut requests = Vec::with_capacity(batch.items.len());
    // By position why an item is no call at all; the others are asked for.
    let mut malformed = Vec::with_capacity(batch.items.len());
    for item in &batch.items {
        match request(item.get(), producer) {
            Ok(request) => {
                requests.push(request);
                malformed.push(None);
            }
            Err(problem) => malformed.push(Some(problem)),
        }
    }
    let wrong = malformed.iter().any(Option::is_some);
    if wrong && batch.mode == Mode::AllOrNothing {
        // What could be refused besides is told when these are calls.
        let known = malformed.into_iter().enumerate().filter_map(|(index, problem)| Some((index, problem?)));
        return Err(refused(state, batch, known));
    }
    let told = if requests.is_empty() {
        Vec::new()
    } else {
        match admission::admit_many(&state.pool, &requests, batch.mode).await {
            Ok(told) => {
                told.iter().filter_map(admission::met).for_each(|mode| state.metrics.failure_mode(mode));
                told
            }
            Err(BulkError::Call(error)) => return Err(error.into()),
            Err(BulkError::Refused(items)) => {
                let known = items.into_iter().map(|one| {
                    let answer = Err(one.error);
                    if let Some(mode) = admission::met(&answer) {
                        state.metrics.failure_mode(mode);
                    }
                    (one.index, answer)
                });
                let known = known.filter_map(|(index, answer)| Some((index, answer.err()?.into())));
                return Err(refused(state, batch, known));
            }
        }
    };
    let mut told = told.into_iter();
    let lost = || Problem::new(ProblemKind::Internal, "an item got no answer");
    let answer = |known: Option<Problem>| match known {
        Some(problem) => Err(problem),
        None => told.next().map_or_else(|| Err(lost()), |answer| answer.map_err(Problem::from)),
    };
    Ok(malformed.into_iter().map(answer).collect())
}

fn request(item: &str, producer: &Principal) -> Result<NewRequest, Problem> {
    let mut asked = body::within::<Asked<'_>>(item)?;
    let key = asked.idempotency_key.take();
    let request = asked.request(producer, key)?;
    unreadable(&request.payload).map_or(Ok(request), |error| Err(error.into()))
}

/// All or nothing, and it is nothing: every refused item with its index.
fn refused(state: &AppState, batch: &Batch<'_>, items: impl Iterator<Item = (usize, Problem)>) -> Problem {
    let mut first = String::new();
    let told: Vec<Value> = items
        .map(|(index, problem)| {
            state.metrics.enqueue("http", problem.kind().name());
            let told = item(index, &Err(problem));
            if first.is_empty() {
                first = format!("item {index}: {}", told["detail"].as_str().unwrap_or_default());
            }
            told
        })
        .collect();
    let words =
        format!("nothing was enqueued, since {} of {} items are refused; {first}", told.len(), batch.items.len());
    Problem::new(ProblemKind::BatchRefused, words).with("items", told)
}

/// An answer with its index and the status that a call of its own would have had.
fn item(index: usize, answer: &Result<Receipt, Problem>) -> Value {
    let mut members = match answer {
        Ok(receipt) => {
            let status = match receipt.verdict {
                Verdict::Accepted => StatusCode::CREATED,
                Verdict::Replayed | Verdict::AlreadyRequested => StatusCode::OK,
            };
            let mut members = match serde_json::to_value(receipt) {
                Ok(Value::Object(members)) => members,
                Ok(_) | Err(_) => Map::new(),
            };
            members.insert("status".to_owned(), json!(status.as_u16()));
            members
        }
        Err(problem) => problem.members(),
    };
    members.insert("index".to_owned(), json!(index));
    Value::Object(members)
}
