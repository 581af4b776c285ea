//! The way in: `settled.enqueue` and `settled.cancel`, and what a surface writes down about a refusal.
//!
//! Called by `engine::admission`, and by the library's users inside their own transaction. The ledger decides in SQL; this
//! file only hands the call over and gives each SQLSTATE its type.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

/// One call that asks for an effect.
#[derive(Clone, Default)]
pub struct NewRequest {
    /// Name of the destination.
    pub destination: String,
    /// Business name of the effect, such as INV-2291.
    pub reference: String,
    /// JSON text exactly as given; parsing it first would lose duplicates and digits.
    pub payload: String,
    /// The run; together with `step`, or neither.
    pub run_id: Option<String>,
    /// Position in the run.
    pub step: Option<i64>,
    /// Everything else.
    pub options: Options,
}

impl std::fmt::Debug for NewRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the payload, the caller key or who gets it.
        f.debug_struct("NewRequest")
            .field("destination", &self.destination)
            .field("reference", &self.reference)
            .field("run_id", &self.run_id)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

/// The options of `settled.enqueue`. `tenant` is needed by the daemon; `principal` and `surface` are the daemon's alone.
#[derive(Clone, Default, Serialize)]
pub struct Options {
    /// Names one effect of several in a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// 2, 3, … for a wanted repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<i32>,
    /// Not claimed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<DateTime<Utc>>,
    /// No attempt after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// Who told the caller to: an object of strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructed_by: Option<serde_json::Value>,
    /// W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Whose call it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// An `Idempotency-Key`; the identity where no run and step are given, ignored beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller_key: Option<String>,
    /// Who called the surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Which surface: sql, http, mcp, cli, amqp, library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

/// The three answers. Each means that the effect has happened or still may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A new intent.
    Accepted,
    /// The same call again.
    Replayed,
    /// Somebody else asked for the same effect, with the same content.
    AlreadyRequested,
}

impl Verdict {
    /// The word used in SQL, answers and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Replayed => "replayed",
            Self::AlreadyRequested => "already_requested",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Accepted, Self::Replayed, Self::AlreadyRequested].into_iter().find(|v| v.as_str() == word)
    }
}

/// What the ledger answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Receipt {
    /// Which of the three answers.
    pub verdict: Verdict,
    /// The intent that stands for the effect.
    pub intent_id: Uuid,
    /// Its state at that moment.
    #[schema(value_type = crate::domain::state::State)]
    pub state: String,
    /// The downstream's own name for the effect, once sent.
    pub provider_id: Option<String>,
    /// When it was sent.
    pub sent_at: Option<DateTime<Utc>>,
    /// Words, such as "content not compared".
    pub detail: Option<String>,
}

/// What a conflict collided in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Run, step and slot were used for other content.
    Identity,
    /// The caller key was used for other content.
    CallerKey,
    /// The effect was requested with other content, by another call.
    Effect,
}

/// Other content under a known name. Nothing was enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What collided.
    pub kind: ConflictKind,
    /// JSON pointers into the call at which the contents differ; at most 36.
    pub pointers: Vec<String>,
    /// The earlier intent, of the same tenant.
    pub intent_id: Uuid,
    /// Its state.
    pub state: String,
}

/// An earlier intent of the same tenant, named by a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// The intent.
    pub intent_id: Uuid,
    /// Its state.
    pub state: String,
}

/// Everything that is no answer: nothing was enqueued, unless the database's own error came with a lost connection.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// ST400.
    #[error("{words}")]
    Invalid {
        /// JSON pointer into the call seen as one object.
        field: String,
        /// One word for the rule that was broken.
        rule: String,
        /// For people: field and rule.
        words: String,
    },
    /// ST401.
    #[error("identity_required: give run_id and step, or a caller key")]
    IdentityRequired,
    /// ST403: no producer, another tenant's name, no grant for the destination.
    #[error("{0}")]
    NotAllowed(String),
    /// ST404: unknown or withdrawn destination; for cancel, an unknown intent.
    #[error("{0}")]
    NotFound(String),
    /// ST409.
    #[error("{words}")]
    Conflict {
        /// What differs, from what.
        conflict: Box<Conflict>,
        /// For people.
        words: String,
    },
    /// ST410: the deadline has passed, or the ledger remembers the identity but not its content.
    #[error("{0}")]
    Expired(String),
    /// ST411: the same call again, but its intent ended without effect.
    #[error("ended_without_effect: intent {} is {}; nothing will be sent", .0.intent_id, .0.state)]
    EndedWithoutEffect(Earlier),
    /// ST412: an earlier intent ended, but may have had its effect.
    #[error("effect_held: intent {} is {} but may have had its effect", .0.intent_id, .0.state)]
    EffectHeld(Earlier),
    /// ST413, cancel only: it was attempted, or is settled.
    #[error("{words}")]
    TooLate {
        /// The intent.
        earlier: Earlier,
        /// For people.
        words: String,
    },
    /// ST423: the same effect or identity is being requested in a transaction that is still open. Try again.
    #[error("{0}")]
    RivalOpen(String),
    /// The database's own: 40001 and 40P01 among them.
    #[error(transparent)]
    Database(sqlx::Error),
}

impl EnqueueError {
    /// 40001 and 40P01: the same statement in a new transaction may succeed.
    pub fn is_serialization(&self) -> bool {
        match self {
            Self::Database(error) => {
                error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code == "40001" || code == "40P01")
            }
            Self::Invalid { .. }
            | Self::IdentityRequired
            | Self::NotAllowed(_)
            | Self::NotFound(_)
            | Self::Conflict { .. }
            | Self::Expired(_)
            | Self::EndedWithoutEffect(_)
            | Self::EffectHeld(_)
            | Self::TooLate { .. }
            | Self::RivalOpen(_) => false,
        }
    }
}

#[derive(Deserialize)]
struct Named {
    field: String,
    rule: String,
}

impl From<sqlx::Error> for EnqueueError {
    fn from(error: sqlx::Error) -> Self {
        typed(&error).unwrap_or(Self::Database(error))
    }
}

/// The variant of an SQLSTATE; none where it is not one of the ledger's, or where its detail is not what the ledger writes.
fn typed(error: &sqlx::Error) -> Option<EnqueueError> {
    let raised = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    refusal(raised.code(), raised.message().to_owned(), raised.detail().unwrap_or_default())
}

/// The variant of an SQLSTATE with its words and detail, however they came.
pub(super) fn refusal(code: &str, words: String, detail: &str) -> Option<EnqueueError> {
    match code {
        "ST400" => {
            let Named { field, rule } = serde_json::from_str(detail).ok()?;
            Some(EnqueueError::Invalid { field, rule, words })
        }
        "ST401" => Some(EnqueueError::IdentityRequired),
        "ST403" => Some(EnqueueError::NotAllowed(words)),
        "ST404" => Some(EnqueueError::NotFound(words)),
        "ST409" => Some(EnqueueError::Conflict { conflict: serde_json::from_str(detail).ok()?, words }),
        "ST410" => Some(EnqueueError::Expired(words)),
        "ST411" => Some(EnqueueError::EndedWithoutEffect(serde_json::from_str(detail).ok()?)),
        "ST412" => Some(EnqueueError::EffectHeld(serde_json::from_str(detail).ok()?)),
        "ST413" => Some(EnqueueError::TooLate { earlier: serde_json::from_str(detail).ok()?, words }),
        "ST423" => Some(EnqueueError::RivalOpen(words)),
        // Raised by the cast of the payload, before the function runs.
        "22P02" | "22021" => Some(payload_invalid("json", "must be JSON text")),
        "54001" => Some(payload_invalid("depth", "must not be nested deeper than 32")),
        _ => None,
    }
}

pub(super) fn payload_invalid(rule: &str, words: &str) -> EnqueueError {
    EnqueueError::Invalid { field: "/payload".to_owned(), rule: rule.to_owned(), words: format!("/payload: {words}") }
}

/// Asks the ledger, in the caller's transaction if there is one. After an error the transaction is aborted.
pub async fn enqueue(conn: &mut PgConnection, request: &NewRequest) -> Result<Receipt, EnqueueError> {
    // What Postgres text cannot hold would come back as an opaque protocol error.
    if let Some(field) = first_with_nul(request) {
        return Err(EnqueueError::Invalid {
            field: field.to_owned(),
            rule: "nul".to_owned(),
            words: format!("{field}: must not contain U+0000"),
        });
    }
    if request.payload.len() > MAX_PAYLOAD {
        return Err(payload_invalid("size", "must not be longer than 256 KiB"));
    }
    let options =
        serde_json::to_value(&request.options).map_err(|e| EnqueueError::Database(sqlx::Error::Encode(Box::new(e))))?;
    let row = sqlx::query!(
        r#"-- requests::enqueue
        select verdict as "verdict!", intent_id as "intent_id!", state as "state!", provider_id, sent_at, detail
        from settled.enqueue($1, $2, $3::text::json, $4, $5, $6)"#,
        request.destination,
        request.reference,
        request.payload,
        request.run_id.as_deref() as Option<&str>,
        request.step as Option<i64>,
        options,
    )
    .fetch_one(conn)
    .await?;
    let verdict = Verdict::parse(&row.verdict).ok_or_else(|| {
        EnqueueError::Database(sqlx::Error::Decode(format!("unknown verdict {}", row.verdict).into()))
    })?;
    Ok(Receipt {
        verdict,
        intent_id: row.intent_id,
        state: row.state,
        provider_id: row.provider_id,
        sent_at: row.sent_at,
        detail: row.detail,
    })
}

/// Largest payload, bytes; the function checks it too.
pub const MAX_PAYLOAD: usize = 256 * 1024;

fn first_with_nul(request: &NewRequest) -> Option<&'static str> {
    let options = &request.options;
    [
        ("/destination", Some(&request.destination)),
        ("/reference", Some(&request.reference)),
        ("/payload", Some(&request.payload)),
        ("/run_id", request.run_id.as_ref()),
        ("/slot", options.slot.as_ref()),
        ("/tenant", options.tenant.as_ref()),
        ("/caller_key", options.caller_key.as_ref()),
        ("/principal", options.principal.as_ref()),
        ("/traceparent", options.traceparent.as_ref()),
    ]
    .into_iter()
    .find(|(_, value)| value.is_some_and(|text| text.contains('\0')))
    .map(|(field, _)| field)
    .or_else(|| options.instructed_by.as_ref().filter(|v| v.to_string().contains("\\u0000")).map(|_| "/instructed_by"))
}

/// Withdraws what was never attempted. With a tenant only an intent of it is known. `actor` is who does it, for the journal
/// (`producer:…`, `operator:…`); only the owner of the ledger may name one. Answers the state, `cancelled`.
pub async fn cancel(
    conn: &mut PgConnection,
    intent_id: Uuid,
    reason: &str,
    tenant: Option<&str>,
    actor: Option<&str>,
) -> Result<String, EnqueueError> {
    let mut options = serde_json::Map::new();
    for (name, value) in [("tenant", tenant), ("actor", actor)] {
        if let Some(value) = value {
            options.insert(name.to_owned(), value.into());
        }
    }
    let state = sqlx::query_scalar!(
        r#"-- requests::cancel
        select settled.cancel($1, $2, $3) as "state!""#,
        intent_id,
        reason,
        serde_json::Value::Object(options),
    )
    .fetch_one(conn)
    .await?;
    Ok(state)
}

/// Writes a refused conflict down, in a transaction of its own: a journal row, and one open escalation for each earlier intent.
pub async fn record_conflict(
    conn: &mut PgConnection,
    request: &NewRequest,
    conflict: &Conflict,
) -> Result<(), sqlx::Error> {
    let actor = format!("producer:{}", request.options.principal.as_deref().unwrap_or("unnamed"));
    let summary = format!(
        "{} for {} was asked for again with other content ({})",
        request.reference,
        request.destination,
        conflict.pointers.join(", ")
    );
    let data = serde_json::json!({
        "kind": conflict.kind,
        "pointers": conflict.pointers,
        "destination": request.destination,
        "reference": request.reference,
        "run_id": request.run_id,
        "step": request.step,
        "slot": request.options.slot,
        "surface": request.options.surface,
    });
    sqlx::query!(
        "-- requests::record_conflict
        with j as (
          insert into settled.journal (intent_id, kind, actor, data) values ($1, 'conflict', $2, $3)
        )
        insert into settled.escalations (id, subject, intent_id, destination, tenant, reason, cause, summary, detail)
        select settled.uuid_v7(), 'request', i.id, i.destination, i.tenant, 'conflict', 'conflict/' || i.destination, $4, $3
        from settled.intents i where i.id = $1
        on conflict do nothing",
        conflict.intent_id,
        actor,
        data,
        summary,
    )
    .execute(conn)
    .await?;
    Ok(())
}
