//! Admission: what every surface of the daemon calls to ask for an effect or to take the wish back.
//!
//! Each call is a transaction of its own. The ledger decides (`store::requests`); here its serialisation failures are tried
//! again, and a conflict is written down where the refused transaction could not.

use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    domain::failure_mode::FailureMode,
    store::requests::{self, ConflictKind, EnqueueError, NewRequest, Receipt, Verdict},
};

/// 40001 and 40P01 of our own one-statement transaction pass after a few rounds.
const ROUNDS: u32 = 5;

/// Asks for an effect. When this returns `Ok`, the intent is as durable as the database.
///
/// # Errors
/// As [`EnqueueError`] says. A lost connection leaves open whether it was accepted; the same call again tells.
pub async fn admit(pool: &PgPool, request: &NewRequest) -> Result<Receipt, EnqueueError> {
    let answer = ask(pool, request).await;
    if let Err(EnqueueError::Conflict { conflict, .. }) = &answer {
        // The refusal is the answer whatever happens to its record.
        if let Err(error) = record(pool, request, conflict).await {
            tracing::warn!(intent_id = %conflict.intent_id, %error, "failed to record a conflict");
        }
    }
    answer
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
