//! `settled.sightings`: evidence that came by itself, or that no row explains.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// Something that was seen and belongs to no intent.
#[derive(Debug, Clone)]
pub struct Sighting<'a> {
    /// Where: `look_up`.
    pub source: &'a str,
    /// The key that it carries.
    pub key: &'a str,
    /// The downstream's name for it.
    pub provider_id: Option<&'a str>,
    /// What else was seen; no recipient.
    pub detail: Value,
    /// Database time.
    pub at: DateTime<Utc>,
}

/// Keeps an effect that no row explains. False where it was seen before.
///
/// # Errors
/// When Postgres does.
pub async fn orphan(conn: &mut PgConnection, sighting: &Sighting<'_>) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- sightings::orphan
        insert into settled.sightings (id, source, key, provider_id, seen_at, detail)
        select $1, $2, $3, $4, $5, $6
         where not exists (select from settled.sightings
                            where key = $3 and intent_id is null and provider_id is not distinct from $4)",
        Uuid::now_v7(),
        sighting.source,
        sighting.key,
        sighting.provider_id,
        sighting.at,
        sighting.detail,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
