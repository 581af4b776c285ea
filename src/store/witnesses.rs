//! `settled.witnesses`: a sample of sends known as sent by reply. Controls for absence are taken from here.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// A send that can be asked about with a known answer.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The intent.
    pub intent_id: Uuid,
    /// When its send began.
    pub started_at: DateTime<Utc>,
    /// When it was over.
    pub ended_at: DateTime<Utc>,
    /// Its key.
    pub key: String,
    /// Its reference.
    pub reference: String,
    /// Its occurrence.
    pub occurrence: i32,
    /// Its recipient.
    pub recipient: String,
    /// The account the downstream named at the send.
    pub account: Option<String>,
}

/// Keeps a witness.
///
/// # Errors
/// When Postgres does.
pub async fn keep(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    witness: &Witness,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- witnesses::keep
        insert into settled.witnesses
            (destination, generation, intent_id, started_at, ended_at, key, reference, occurrence, recipient, account)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict do nothing",
        destination,
        generation,
        witness.intent_id,
        witness.started_at,
        witness.ended_at,
        witness.key,
        witness.reference,
        witness.occurrence,
        witness.recipient,
        witness.account,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The youngest witness that was over before `before` and is not older than `since`.
///
/// # Errors
/// When Postgres does.
pub async fn elder(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    before: DateTime<Utc>,
    since: DateTime<Utc>,
    recipient: Option<&str>,
) -> Result<Option<Witness>, StoreError> {
    Ok(sqlx::query_as!(
        Witness,
        "-- witnesses::elder
        select intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
         where destination = $1 and generation = $2 and started_at < $3 and ended_at < $3 and started_at > $4
           and ($5::text is null or recipient = $5)
         order by started_at desc limit 1",
        destination,
        generation,
        before,
        since,
        recipient,
    )
    .fetch_optional(conn)
    .await?)
}

/// The eldest witness whose send started after `after`.
///
/// # Errors
/// When Postgres does.
pub async fn younger(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    after: DateTime<Utc>,
    recipient: Option<&str>,
) -> Result<Option<Witness>, StoreError> {
    Ok(sqlx::query_as!(
        Witness,
        "-- witnesses::younger
        select intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
         where destination = $1 and generation = $2 and started_at > $3 and ($4::text is null or recipient = $4)
         order by started_at limit 1",
        destination,
        generation,
        after,
        recipient,
    )
    .fetch_optional(conn)
    .await?)
}
