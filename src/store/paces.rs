//! `settled.paces`: how fast a destination may be sent to, by all daemons together.
//!
//! A row is locked by who claims for a destination whose pace is limited, and by nobody else; it is never locked after an
//! intent's row.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::error::StoreError;

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct PaceRow {
    /// Sends that may begin, as of `counted_at`.
    pub tokens: f64,
    /// When they were counted.
    pub counted_at: DateTime<Utc>,
    /// Sends a second that the destination seems to bear; `None`: as configured.
    pub learned: Option<f64>,
    /// Up to here the learned pace grows fast.
    pub ceiling: Option<f64>,
    /// What was claimed before that slows nothing down again.
    pub slowed_at: Option<DateTime<Utc>>,
    /// When it grew last.
    pub grown_at: Option<DateTime<Utc>>,
    /// Nothing is sent before.
    pub not_before: Option<DateTime<Utc>>,
}

/// Locks the row of a destination, making it where there is none, and reads the time.
///
/// # Errors
/// When Postgres does.
pub async fn lock(
    conn: &mut PgConnection,
    destination: &str,
    tokens: f64,
    at: Option<DateTime<Utc>>,
) -> Result<(PaceRow, DateTime<Utc>), StoreError> {
    sqlx::query!(
        "-- paces::lock (made)
        insert into settled.paces (destination, tokens, counted_at)
        select $1, $2, coalesce($3, clock_timestamp()) where not exists (select from settled.paces where destination = $1)
        on conflict do nothing",
        destination,
        tokens,
        at,
    )
    .execute(&mut *conn)
    .await?;
    let row = sqlx::query!(
        r#"-- paces::lock
        select tokens, counted_at, learned, ceiling, slowed_at, grown_at, not_before, coalesce($2, clock_timestamp()) as "now!"
          from settled.paces where destination = $1 for no key update"#,
        destination,
        at,
    )
    .fetch_one(conn)
    .await?;
    let pace = PaceRow {
        tokens: row.tokens,
        counted_at: row.counted_at,
        learned: row.learned,
        ceiling: row.ceiling,
        slowed_at: row.slowed_at,
        grown_at: row.grown_at,
        not_before: row.not_before,
    };
    Ok((pace, row.now))
}

/// Writes a row that the caller has locked.
///
/// # Errors
/// When Postgres does.
pub async fn write(conn: &mut PgConnection, destination: &str, pace: &PaceRow) -> Result<(), StoreError> {
    sqlx::query!(
        "-- paces::write
        update settled.paces
           set tokens = $2, counted_at = $3, learned = $4, ceiling = $5, slowed_at = $6, grown_at = $7, not_before = $8
         where destination = $1",
        destination,
        pace.tokens,
        pace.counted_at,
        pace.learned,
        pace.ceiling,
        pace.slowed_at,
        pace.grown_at,
        pace.not_before,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets what a destination asked for and what was learned of it, with a journal row. False where there was nothing.
///
/// # Errors
/// When Postgres does.
pub async fn release(conn: &mut PgConnection, destination: &str, actor: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- paces::release
        with r as (
          update settled.paces set not_before = null, learned = null, ceiling = null, slowed_at = null, grown_at = null
           where destination = $1 and (not_before is not null or learned is not null) returning destination
        )
        insert into settled.journal (kind, actor, data)
        select 'administration', $2::text, jsonb_build_object('act', 'release', 'destination', r.destination) from r",
        destination,
        actor,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
