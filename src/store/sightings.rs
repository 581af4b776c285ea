//! `settled.sightings` and `settled.sighting_keys`: what downstreams report by themselves, and whose key it names.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// Remembers whose keys are about to leave, so that a report can be told from a stranger's. In the claiming transaction.
///
/// # Errors
/// When Postgres does.
pub async fn expect(
    conn: &mut PgConnection,
    destination: &str,
    keys: &[String],
    intents: &[Uuid],
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- sightings::expect
        insert into settled.sighting_keys (destination, key, intent_id)
        select $1, k.key, k.intent_id from unnest($2::text[], $3::uuid[]) as k(key, intent_id)
        on conflict do nothing",
        destination,
        keys,
        intents,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The intent of a destination that has this key; `reference`, where it is known, also finds one whose key was not remembered.
///
/// # Errors
/// When Postgres does.
pub async fn intent_of(
    conn: &mut PgConnection,
    destination: &str,
    key: &str,
    reference: Option<&str>,
) -> Result<Option<Uuid>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- sightings::intent_of
        select coalesce(
          (select k.intent_id from settled.sighting_keys k where k.destination = $1 and k.key = $2),
          (select i.id from settled.intents i
            where i.reference = lower($3 collate "C") and i.destination = $1 and i.key = $2 limit 1))"#,
        destination,
        key,
        reference,
    )
    .fetch_one(conn)
    .await?)
}

/// Whether an effect was reported under this key that no row explained then, by a downstream or by our own late reply, to any
/// destination of the scope. What only may have been sent does not count.
///
/// # Errors
/// When Postgres does.
pub async fn unexplained(conn: &mut PgConnection, scope: &str, key: &str) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- sightings::unexplained
        select exists (select from settled.sightings s
                        where s.destination in (select d.name from settled.destinations d where d.effect_scope = $1)
                          and s.key in ($2, upper($2)) and s.intent_id is null
                          and (s.status <> 'other' or s.received_by <> 'dispatcher')) as "is!""#,
        scope,
        key,
    )
    .fetch_one(conn)
    .await?)
}

/// One report, as it is kept.
#[derive(Debug, Clone)]
pub struct NewSighting<'a> {
    /// Who reported.
    pub destination: &'a str,
    /// Our key.
    pub key: &'a str,
    /// Whose key it is, where a row explains it.
    pub intent_id: Option<Uuid>,
    /// `accepted`, `delivered`, `failed`, `other`.
    pub status: &'a str,
    /// In the downstream's words.
    pub word: &'a str,
    /// Its error code.
    pub code: Option<&'a str>,
    /// Its name for the effect; empty for none.
    pub provider_id: &'a str,
    /// Its time.
    pub at: DateTime<Utc>,
    /// The token that brought it.
    pub received_by: &'a str,
}

/// Keeps a report. False where the same one was kept before.
///
/// # Errors
/// When Postgres does.
pub async fn keep(conn: &mut PgConnection, new: &NewSighting<'_>) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- sightings::keep
        insert into settled.sightings (destination, key, intent_id, status, word, code, provider_id, at, received_by)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict do nothing",
        new.destination,
        new.key,
        new.intent_id,
        new.status,
        new.word,
        new.code,
        new.provider_id,
        new.at,
        new.received_by,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
