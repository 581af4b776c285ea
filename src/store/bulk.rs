//! Asking in bulk: `settled.enqueue_many`, up to 1,000 calls in one transaction.
//!
//! Called by `engine::admission` and by the library's users inside their own transaction. The ledger decides about each item
//! as it does about a call of its own; this file hands the calls over as one JSON text and gives each refusal its type.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::PgConnection;

use super::requests::{EnqueueError, NewRequest, Options, Receipt, Verdict, refusal};

/// Most items of one call; the function checks it too.
pub const MAX_ITEMS: usize = 1000;

/// Most bytes of one call; the function checks it too.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// What one refused item means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing is enqueued.
    #[default]
    AllOrNothing,
    /// Nothing; each is answered for itself.
    PerItem,
}

impl Mode {
    /// The word of SQL and HTTP.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllOrNothing => "all_or_nothing",
            Self::PerItem => "per_item",
        }
    }
}

/// One item that was refused.
#[derive(Debug)]
pub struct Refused {
    /// Its place in the call, from 0.
    pub index: usize,
    /// Why.
    pub error: EnqueueError,
}

/// Everything that is no answer about items.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// ST424: nothing was enqueued, since these items are refused; at least one.
    #[error("batch_refused: nothing was enqueued, since {} of the items are refused", .0.len())]
    Refused(Vec<Refused>),
    /// The call as a whole.
    #[error(transparent)]
    Call(#[from] EnqueueError),
}

impl From<sqlx::Error> for BulkError {
    fn from(error: sqlx::Error) -> Self {
        refused_items(&error).map_or_else(|| Self::Call(error.into()), Self::Refused)
    }
}

/// A refusal as the ledger tells it.
#[derive(Deserialize)]
struct Told {
    index: usize,
    code: String,
    message: String,
    about: Option<serde_json::Value>,
}

impl Told {
    fn refused(self) -> Option<Refused> {
        let detail = self.about.map(|about| about.to_string()).unwrap_or_default();
        Some(Refused { index: self.index, error: refusal(&self.code, self.message, &detail)? })
    }
}

fn refused_items(error: &sqlx::Error) -> Option<Vec<Refused>> {
    let raised = error.as_database_error()?.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    if raised.code() != "ST424" {
        return None;
    }
    let told: Vec<Told> = serde_json::from_str(raised.detail()?).ok()?;
    told.into_iter().map(Told::refused).collect()
}

#[derive(Serialize)]
struct Item<'a> {
    destination: &'a str,
    reference: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<i64>,
    options: &'a Options,
}

/// So deep no rule allows, and Postgres itself may not read it: the cast of the whole call would fail for one item.
const TOO_DEEP: usize = 1000;

/// The refusal of a payload that would take the whole call with it; none where the ledger can judge it.
pub fn unreadable(payload: &str) -> Option<EnqueueError> {
    let (mut depth, mut text, mut escaped): (usize, bool, bool) = (0, false, false);
    for byte in payload.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'[' | b'{' if !text => depth += 1,
            b']' | b'}' if !text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > TOO_DEEP {
            return Some(super::requests::payload_invalid("depth", "must not be nested deeper than 32"));
        }
    }
    None
}

/// The calls as the JSON text that the function takes. Payloads stay as they were given.
fn text(requests: &[NewRequest]) -> Result<String, BulkError> {
    let mut parsed = Vec::with_capacity(requests.len());
    let mut wrong = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        if let Some(error) = unreadable(&request.payload) {
            wrong.push(Refused { index, error });
            continue;
        }
        match serde_json::from_str::<&RawValue>(&request.payload) {
            Ok(payload) => parsed.push(Item {
                destination: &request.destination,
                reference: &request.reference,
                payload,
                run_id: request.run_id.as_deref(),
                step: request.step,
                options: &request.options,
            }),
            Err(_) => {
                wrong.push(Refused { index, error: super::requests::payload_invalid("json", "must be JSON text") })
            }
        }
    }
    if !wrong.is_empty() {
        return Err(BulkError::Refused(wrong));
    }
    serde_json::to_string(&parsed)
        .map_err(|e| BulkError::Call(EnqueueError::Database(sqlx::Error::Encode(Box::new(e)))))
}

/// Asks the ledger for all of them, in the caller's transaction if there is one. Answers in the order of the calls; refusals
/// are among the answers only in mode [`Mode::PerItem`]. After an error the transaction is aborted.
///
/// # Errors
/// [`BulkError::Refused`] names every refused item in mode [`Mode::AllOrNothing`]; a payload that is no JSON text at all, or
/// [`unreadable`], is refused in either mode before anything is asked.
pub async fn enqueue_many(
    conn: &mut PgConnection,
    requests: &[NewRequest],
    mode: Mode,
) -> Result<Vec<Result<Receipt, EnqueueError>>, BulkError> {
    let calls = text(requests)?;
    let rows = sqlx::query!(
        r#"-- bulk::enqueue_many
        select index as "index!", verdict, intent_id, state, provider_id, sent_at, detail, code, message, about
          from settled.enqueue_many($1::text::json, $2)"#,
        calls,
        mode.as_str(),
    )
    .fetch_all(conn)
    .await?;
    let unknown = || EnqueueError::Database(sqlx::Error::Decode("an answer of settled.enqueue_many is unknown".into()));
    let answers = rows.into_iter().map(|row| {
        if let Some(code) = row.code {
            let detail = row.about.map(|about| about.to_string()).unwrap_or_default();
            return Err(refusal(&code, row.message.unwrap_or_default(), &detail).unwrap_or_else(unknown));
        }
        match (row.verdict.as_deref().and_then(Verdict::parse), row.intent_id, row.state) {
            (Some(verdict), Some(intent_id), Some(state)) => Ok(Receipt {
                verdict,
                intent_id,
                state,
                provider_id: row.provider_id,
                sent_at: row.sent_at,
                detail: row.detail,
            }),
            _ => Err(unknown()),
        }
    });
    Ok(answers.collect())
}
