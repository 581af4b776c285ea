//! `settled.sightings`: evidence that came by itself, also for what the ledger does not have.

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;
use crate::domain::reason::Reason;

/// Evidence of an effect that no row explains.
#[derive(Debug, Clone)]
pub struct Orphan<'a> {
    /// Where it came from.
    pub source: &'a str,
    /// Key that it carries.
    pub key: &'a str,
    /// Where it was sent to.
    pub destination: &'a str,
    /// Intent that it names, of which there is no row.
    pub intent_id: Uuid,
    /// Attempt that it names.
    pub attempt: i32,
    /// The downstream's name for it.
    pub provider_id: Option<&'a str>,
    /// What was seen; never payload, recipient or secret.
    pub detail: &'a Value,
    /// For people.
    pub summary: &'a str,
}

/// Keeps it, and tells people: one escalation for a destination while it is open.
///
/// # Errors
/// When Postgres does.
pub async fn keep_orphan(conn: &mut PgConnection, orphan: &Orphan<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "-- sightings::keep_orphan
        with kept as (
            insert into settled.sightings (id, source, key, intent_id, attempt, provider_id, detail)
            values ($1, $2, $3, $4, $5, $6, $7))
        insert into settled.escalations (id, subject, destination, reason, cause, summary, detail)
        values ($8, 'sighting', $9, $10, $10 || '/' || $9::text, $11, jsonb_build_object('sighting', $1::uuid))
        on conflict do nothing",
        Uuid::now_v7(),
        orphan.source,
        orphan.key,
        orphan.intent_id,
        orphan.attempt,
        orphan.provider_id,
        orphan.detail,
        Uuid::now_v7(),
        orphan.destination,
        Reason::OrphanSighting.as_str(),
        orphan.summary,
    )
    .execute(conn)
    .await?;
    Ok(())
}
