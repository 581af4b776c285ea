//! `settled enqueue` and `settled cancel`, by database or over HTTP.

use std::io::Read;

use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    arguments::{Api, Enqueue},
    bulk,
    client::{Client, Reply},
    context::Context,
    exit::{Exit, Failure},
};
use crate::store::{
    listing,
    requests::{self, EnqueueError, MAX_PAYLOAD, NewRequest, Options},
};

pub(super) async fn run(context: &Context, asked: &Enqueue) -> Result<Exit, Failure> {
    if let Some(file) = &asked.bulk {
        return bulk::run(context, asked, file).await;
    }
    let (Some(destination), Some(reference), Some(payload_at)) = (&asked.destination, &asked.reference, &asked.payload)
    else {
        return Err(Failure::new(Exit::Usage, "give a destination, a reference and --payload, or --bulk"));
    };
    let one = One { asked, destination, reference, payload: payload(payload_at)? };
    match Client::of(&asked.api)? {
        Some(client) => over_http(context, &one, &client).await,
        None => by_database(context, one).await,
    }
}

/// One call, with what it cannot be without.
struct One<'a> {
    asked: &'a Enqueue,
    destination: &'a str,
    reference: &'a str,
    payload: String,
}

pub(super) async fn cancel(
    context: &Context,
    intent: Uuid,
    reason: &str,
    version: Option<i64>,
    api: &Api,
) -> Result<Exit, Failure> {
    let state = match Client::of(api)? {
        Some(client) => {
            let body = match version {
                Some(version) => json!({ "reason": reason, "version": version }),
                None => json!({ "reason": reason }),
            }
            .to_string();
            let reply = client.call("POST", &format!("/v1/intents/{intent}/cancel"), &[], Some(body)).await?;
            ok(&reply)?["state"].as_str().unwrap_or("cancelled").to_owned()
        }
        None => {
            let mut conn = context.connect().await?;
            let owner = listing::is_owner(&mut conn).await?;
            let actor = owner.then(Context::actor);
            requests::cancel(&mut conn, intent, reason, None, actor.as_deref()).await.map_err(refused)?
        }
    };
    context.out.value(&json!({ "intent_id": intent, "state": state }), |_| format!("intent {intent} is {state}"))?;
    Ok(Exit::Ok)
}

/// JSON text, `@FILE` or `-`; handed on as it is.
fn payload(argument: &str) -> Result<String, Failure> {
    let read = |from: &mut dyn Read, name: &str| {
        let mut text = String::new();
        from.take(MAX_PAYLOAD as u64 + 1)
            .read_to_string(&mut text)
            .map_err(|error| Failure::new(Exit::Invalid, format!("--payload: {name}: {error}")))?;
        Ok(text)
    };
    match argument.strip_prefix('@') {
        Some(path) => {
            let mut file = std::fs::File::open(path)
                .map_err(|error| Failure::new(Exit::Invalid, format!("--payload: {path}: {error}")))?;
            read(&mut file, path)
        }
        None if argument == "-" => read(&mut std::io::stdin().lock(), "standard input"),
        None => Ok(argument.to_owned()),
    }
}

fn instructed_by(asked: &Enqueue) -> Result<Option<Value>, Failure> {
    let Some(text) = &asked.instructed_by else { return Ok(None) };
    serde_json::from_str(text)
        .map(Some)
        .map_err(|error| Failure::new(Exit::Invalid, format!("--instructed-by: must be JSON: {error}")))
}

async fn by_database(context: &Context, one: One<'_>) -> Result<Exit, Failure> {
    let One { asked, destination, reference, payload } = one;
    let mut conn = context.connect().await?;
    let owner = listing::is_owner(&mut conn).await?;
    let request = NewRequest {
        destination: destination.to_owned(),
        reference: reference.to_owned(),
        payload,
        run_id: asked.run_id.clone(),
        step: asked.step,
        options: Options {
            slot: (!asked.slot.is_empty()).then(|| asked.slot.clone()),
            occurrence: (asked.occurrence != 1).then_some(asked.occurrence),
            due_at: asked.due_at,
            deadline: asked.deadline,
            instructed_by: instructed_by(asked)?,
            traceparent: asked.traceparent.clone(),
            tenant: asked.tenant.clone(),
            caller_key: asked.idempotency_key.clone(),
            // Only the owner of the ledger speaks for others; a producer is who its session says.
            principal: owner.then(Context::actor),
            surface: owner.then(|| "cli".to_owned()),
        },
    };
    let receipt = ask(&mut conn, &request).await.map_err(refused)?;
    let value = serde_json::to_value(&receipt)?;
    answer(context, reference, &value)
}

/// One statement, one transaction; a conflict is written down afterwards, as every surface does.
async fn ask(conn: &mut PgConnection, request: &NewRequest) -> Result<requests::Receipt, EnqueueError> {
    let answer = requests::enqueue(conn, request).await;
    if let Err(EnqueueError::Conflict { conflict, .. }) = &answer
        && request.options.surface.is_some()
    {
        requests::record_conflict(conn, request, conflict).await.map_err(EnqueueError::Database)?;
    }
    answer
}

#[derive(Serialize)]
struct Body<'a> {
    destination: &'a str,
    reference: &'a str,
    payload: &'a serde_json::value::RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<i64>,
    slot: &'a str,
    occurrence: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<chrono::DateTime<chrono::Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<chrono::DateTime<chrono::Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructed_by: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

async fn over_http(context: &Context, one: &One<'_>, client: &Client) -> Result<Exit, Failure> {
    let One { asked, destination, reference, payload } = one;
    if asked.tenant.is_some() {
        return Err(Failure::new(Exit::Usage, "--tenant: over HTTP the token names the tenant"));
    }
    let raw = serde_json::from_str(payload)
        .map_err(|error| Failure::new(Exit::Invalid, format!("--payload: must be JSON: {error}")))?;
    let body = serde_json::to_string(&Body {
        destination,
        reference,
        payload: raw,
        run_id: asked.run_id.as_deref(),
        step: asked.step,
        slot: &asked.slot,
        occurrence: asked.occurrence,
        due_at: asked.due_at,
        deadline: asked.deadline,
        instructed_by: instructed_by(asked)?,
        traceparent: asked.traceparent.as_deref(),
    })?;
    let key: Vec<(&str, &str)> = asked.idempotency_key.iter().map(|key| ("idempotency-key", key.as_str())).collect();
    let reply = client.call("POST", "/v1/intents", &key, Some(body)).await?;
    answer(context, reference, &ok(&reply)?)
}

fn answer(context: &Context, reference: &str, receipt: &Value) -> Result<Exit, Failure> {
    context.out.value(receipt, |receipt| {
        let id = receipt["intent_id"].as_str().unwrap_or("-");
        let state = receipt["state"].as_str().unwrap_or("-");
        let mut words = match receipt["verdict"].as_str() {
            Some("replayed") => format!("replayed: this call is known; intent {id} is {state}"),
            Some("already_requested") => {
                format!("already requested: {reference} is intent {id}, {state}; nothing new is sent")
            }
            Some(_) | None => format!("accepted: intent {id} is {state}"),
        };
        if let Some(provider) = receipt["provider_id"].as_str() {
            words.push_str(&format!(", message id {provider}"));
        }
        if let Some(detail) = receipt["detail"].as_str() {
            words.push_str(&format!(" ({detail})"));
        }
        words
    })?;
    Ok(Exit::Ok)
}

/// The body of a good answer; a problem as the failure that it means.
pub(super) fn ok(reply: &Reply) -> Result<Value, Failure> {
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
    if (200..300).contains(&reply.status) {
        return Ok(body);
    }
    let (exit, words) = problem(&body);
    let words = if words.is_empty() { format!("the API answered {}", reply.status) } else { words };
    Err(Failure::new(exit, words))
}

/// What a problem document says, and the exit code that it means.
pub(super) fn problem(body: &Value) -> (Exit, String) {
    let name = body["type"].as_str().and_then(|t| t.rsplit(':').next()).unwrap_or("");
    let exit = match name {
        "conflict" | "key_reused" => Exit::Conflict,
        "ended_without_effect" | "expired" => Exit::Ended,
        "rival_open" => Exit::TryLater,
        "unavailable" => Exit::Unavailable,
        "unauthenticated" | "forbidden" => Exit::Denied,
        "not_found" => Exit::NotFound,
        "stale" => Exit::Stale,
        "not_possible" | "too_late" => Exit::NotPossible,
        "malformed" | "invalid" | "incomplete" | "identity_required" | "too_large" => Exit::Invalid,
        _ => Exit::Failed,
    };
    let mut words = body["detail"].as_str().unwrap_or_default().to_owned();
    if let Some(pointers) = body["pointers"].as_array() {
        words.push_str(&differs(pointers.iter().filter_map(Value::as_str)));
    }
    (exit, words)
}

fn differs<'a>(pointers: impl Iterator<Item = &'a str>) -> String {
    format!("\ndiffers in: {}", pointers.collect::<Vec<_>>().join(", "))
}

/// A refusal of the ledger, with the exit code it means.
pub(super) fn refused(error: EnqueueError) -> Failure {
    let words = error.to_string();
    let exit = match &error {
        EnqueueError::Invalid { .. } | EnqueueError::IdentityRequired => Exit::Invalid,
        EnqueueError::NotAllowed(_) => Exit::Denied,
        EnqueueError::NotFound(_) => Exit::NotFound,
        EnqueueError::Conflict { .. } => Exit::Conflict,
        EnqueueError::Expired(_) | EnqueueError::EndedWithoutEffect(_) | EnqueueError::EffectHeld(_) => Exit::Ended,
        EnqueueError::TooLate { .. } => Exit::NotPossible,
        EnqueueError::RivalOpen(_) => Exit::TryLater,
        EnqueueError::Database(_) if error.is_serialization() => Exit::TryLater,
        EnqueueError::Database(_) => Exit::Failed,
    };
    match error {
        EnqueueError::Conflict { conflict, .. } => {
            Failure::new(exit, words + &differs(conflict.pointers.iter().map(String::as_str)))
        }
        EnqueueError::Database(error) if exit == Exit::Failed => error.into(),
        EnqueueError::Database(_)
        | EnqueueError::Invalid { .. }
        | EnqueueError::IdentityRequired
        | EnqueueError::NotAllowed(_)
        | EnqueueError::NotFound(_)
        | EnqueueError::Expired(_)
        | EnqueueError::EndedWithoutEffect(_)
        | EnqueueError::EffectHeld(_)
        | EnqueueError::TooLate { .. }
        | EnqueueError::RivalOpen(_) => Failure::new(exit, words),
    }
}
