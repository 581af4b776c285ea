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

/// Witnesses around many doubts: sent before `first` and after `last`, the nearest of each; where there is none on a side, the
/// one that stands before or after most of them. A younger one that should be visible by now is taken before one that need not
/// be. None of `but` is taken.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// Start of the eldest doubt.
    pub first: DateTime<Utc>,
    /// Closure of the youngest whose lag has gone by.
    pub last: DateTime<Utc>,
    /// Closure of the eldest.
    pub first_closure: DateTime<Utc>,
    /// Start of the youngest.
    pub last_start: DateTime<Utc>,
    /// What had ended by then should be visible.
    pub visible: DateTime<Utc>,
    /// Witnesses older than this are not asked for.
    pub since: DateTime<Utc>,
    /// Those that are asked about.
    pub but: &'a [Uuid],
}

/// An elder and a younger witness for many doubts at once.
///
/// # Errors
/// When Postgres does.
pub async fn around(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    around: &Around<'_>,
) -> Result<(Option<Witness>, Option<Witness>), StoreError> {
    let elder = sqlx::query_as!(
        Witness,
        r#"-- witnesses::around (elder)
        select intent_id as "intent_id!", started_at as "started_at!", ended_at as "ended_at!", key as "key!",
               reference as "reference!", occurrence as "occurrence!", recipient as "recipient!", account
          from ((select 1 as choice, intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
                  where destination = $1 and generation = $2 and started_at < $3 and ended_at < $3 and started_at > $5
                    and intent_id <> all ($6)
                  order by started_at desc limit 1)
                union all
                (select 2, intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
                  where destination = $1 and generation = $2 and started_at < $4 and ended_at < $4 and started_at > $5
                    and intent_id <> all ($6)
                  order by started_at limit 1)) w
         order by choice limit 1"#,
        destination,
        generation,
        around.first,
        around.last_start,
        around.since,
        around.but,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let younger = sqlx::query_as!(
        Witness,
        r#"-- witnesses::around (younger)
        select intent_id as "intent_id!", started_at as "started_at!", ended_at as "ended_at!", key as "key!",
               reference as "reference!", occurrence as "occurrence!", recipient as "recipient!", account
          from ((select 1 as choice, intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
                  where destination = $1 and generation = $2 and started_at > $3 and ended_at <= $6 and intent_id <> all ($5)
                  order by started_at limit 1)
                union all
                (select 2, intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
                  where destination = $1 and generation = $2 and started_at > $4 and ended_at <= $6 and intent_id <> all ($5)
                  order by started_at desc limit 1)
                union all
                (select 3, intent_id, started_at, ended_at, key, reference, occurrence, recipient, account from settled.witnesses
                  where destination = $1 and generation = $2 and started_at > $3 and intent_id <> all ($5)
                  order by started_at limit 1)) w
         order by choice limit 1"#,
        destination,
        generation,
        around.last,
        around.first_closure,
        around.but,
        around.visible,
    )
    .fetch_optional(conn)
    .await?;
    Ok((elder, younger))
}
