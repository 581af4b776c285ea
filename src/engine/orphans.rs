//! Results of attempts whose intent the ledger does not have: its admission was lost with the history it stood in. Kept as a
//! sighting, and told to people; called by `results`.

use serde_json::json;
use sqlx::PgConnection;

use super::results::Finished;
use crate::{
    domain::outcome::Outcome,
    store::{self, error::StoreError, sightings::NewSighting},
};

/// Keeps what may have had an effect; what certainly had none is only logged.
///
/// # Errors
/// When Postgres does.
pub(super) async fn keep(conn: &mut PgConnection, finished: &Finished) -> Result<(), StoreError> {
    let (outcome, intent) = (&finished.ended.outcome, finished.intent_id);
    tracing::error!(intent.id = %intent, outcome = outcome.as_str(), "a result for an intent that the ledger does not have");
    let (provider_id, status, verb) = match outcome {
        Outcome::Sent { provider_id } => (provider_id.as_deref(), "accepted", "was sent"),
        Outcome::Ambiguous { .. } => (None, "other", "may have been sent"),
        Outcome::Refused { .. } | Outcome::NotSent { .. } => return Ok(()),
    };
    let to = &finished.destination;
    let summary =
        format!("{} to {to} {verb}, and the ledger does not have its intent", finished.reference.to_uppercase());
    let sighting = NewSighting {
        destination: to,
        key: &finished.key,
        intent_id: None,
        status,
        word: outcome.as_str(),
        code: None,
        provider_id: provider_id.unwrap_or_default(),
        at: finished.claimed_at,
        received_by: "dispatcher",
    };
    store::sightings::keep(conn, &sighting).await?;
    let detail = json!({
        "intent": intent, "attempt": finished.attempt, "generation": finished.generation, "token": finished.token,
        "ended": finished.ended,
    });
    store::escalations::raise_sighting(conn, to, "", &summary, &detail, None).await?;
    Ok(())
}
