//! Admission: what every surface of the daemon calls to ask for an effect or to take the wish back.
//!
//! Each call is a transaction of its own. The ledger decides (`store::requests`); here its serialisation failures are tried
//! again, and a conflict is written down where the refused transaction could not.

use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    domain::failure_mode::FailureMode,
    store::{
        bulk::{self, BulkError, Mode},
        requests::{self, ConflictKind, EnqueueError, NewRequest, Receipt, Verdict},
    },
};

/// 40001 and 40P01 of our own one-statement transaction pass after a few rounds.
const ROUNDS: u32 = 5;

/// Asks for an effect. When this returns `Ok`, the intent is as durable as the database.
///
/// # Errors
/// As [`EnqueueError`] says. A lost connection leaves open whether it was accepted; the same call again tells.
pub async fn admit(pool: &PgPool, request: &NewRequest) -> Result<Receipt, EnqueueError> {
    let answer = ask(pool, request).await;
    if let Err(error) = &answer {
        write_down(pool, request, error).await;
    }
    answer
}

/// Asks for many effects in one transaction, answered in their order. In mode [`Mode::PerItem`] a refusal is an answer.
///
/// # Errors
/// [`BulkError::Refused`] in the other mode: nothing was enqueued.
pub async fn admit_many(
    pool: &PgPool,
    requests: &[NewRequest],
    mode: Mode,
) -> Result<Vec<Result<Receipt, EnqueueError>>, BulkError> {
    let mut round = 1;
    let answers = loop {
        let answers = {
            let mut conn = pool.acquire().await?;
            bulk::enqueue_many(&mut conn, requests, mode).await
        };
        match answers {
            Err(BulkError::Call(error)) if error.is_serialization() && round < ROUNDS => round += 1,
            other => break other,
        }
    };
    match &answers {
        Ok(answers) => {
            for (request, answer) in requests.iter().zip(answers) {
                if let Err(error) = answer {
                    write_down(pool, request, error).await;
                }
            }
        }
        Err(BulkError::Refused(refused)) => {
            for one in refused {
                if let Some(request) = requests.get(one.index) {
                    write_down(pool, request, &one.error).await;
                }
            }
        }
        Err(BulkError::Call(_)) => {}
    }
    answers
}

/// Writes a conflict down. The refusal is the answer whatever happens to its record.
async fn write_down(pool: &PgPool, request: &NewRequest, error: &EnqueueError) {
    let EnqueueError::Conflict { conflict, .. } = error else { return };
    if let Err(error) = record(pool, request, conflict).await {
        tracing::warn!(intent_id = %conflict.intent_id, %error, "failed to record a conflict");
    }
}

/// The failure mode that an answer has contained: a second decision, or a step that came back as something else.
pub fn met(answer: &Result<Receipt, EnqueueError>) -> Option<FailureMode> {
    match answer {
        Ok(receipt) => match receipt.verdict {
            Verdict::Accepted | Verdict::Replayed => None,
            Verdict::AlreadyRequested => Some(FailureMode::ModelRedecided),
        },
        Err(EnqueueError::Conflict { conflict, .. }) => Some(match conflict.kind {
            ConflictKind::Identity | ConflictKind::CallerKey => FailureMode::StepRetargeted,
            ConflictKind::Effect => FailureMode::ModelRedecided,
        }),
        Err(_) => None,
    }
}

async fn ask(pool: &PgPool, request: &NewRequest) -> Result<Receipt, EnqueueError> {
    let mut round = 1;
    loop {
        let answer = {
            let mut conn = pool.acquire().await?;
            requests::enqueue(&mut conn, request).await
        };
        match answer {
            Err(error) if error.is_serialization() && round < ROUNDS => round += 1,
            other => return other,
        }
    }
}

async fn record(pool: &PgPool, request: &NewRequest, conflict: &requests::Conflict) -> Result<(), sqlx::Error> {
    let mut conn = pool.acquire().await?;
    requests::record_conflict(&mut conn, request, conflict).await
}

/// Withdraws what was never attempted, for a producer of `tenant`. People cancel by `resolution`.
///
/// # Errors
/// `NotFound` also for another tenant's intent; `TooLate` once it was attempted.
pub async fn cancel(
    pool: &PgPool,
    intent_id: Uuid,
    reason: &str,
    tenant: Option<&str>,
    producer: &str,
) -> Result<String, EnqueueError> {
    let mut conn = pool.acquire().await?;
    let actor = format!("producer:{producer}");
    let state = requests::cancel(&mut conn, intent_id, reason, tenant, Some(&actor)).await?;
    tracing::info!(act = "cancel", actor, intent.id = %intent_id, state, "act");
    Ok(state)
}
