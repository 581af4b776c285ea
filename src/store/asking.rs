//! `settled.asking`: what may be asked of a destination by all daemons together.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::error::StoreError;

/// The bucket of one destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// Calls left at `filled_at`; negative after an answer that took more than was expected.
    pub calls: f64,
    /// When that was, database time.
    pub filled_at: DateTime<Utc>,
    /// Calls that one question or listing took of late, at least 1.
    pub cost: f64,
    /// Nobody asks before.
    pub suspended_until: Option<DateTime<Utc>>,
    /// Database time of the read.
    pub now: DateTime<Utc>,
}

/// Locks the bucket of a destination; the first time it is made, full with `per_minute` calls, and a question is taken to cost
/// `expected` of them. Whoever leases questions holds
/// it until they commit, so that two daemons never spend the same calls. `None` where the destination is not known.
///
/// # Errors
/// When Postgres does.
pub async fn lock(
    conn: &mut PgConnection,
    destination: &str,
    per_minute: u32,
    expected: f64,
    at: Option<DateTime<Utc>>,
) -> Result<Option<Bucket>, StoreError> {
    sqlx::query!(
        "-- asking::make
        insert into settled.asking (destination, calls, filled_at, cost)
        select name, $2, coalesce($3, clock_timestamp()), $4 from settled.destinations where name = $1
        on conflict do nothing",
        destination,
        f64::from(per_minute),
        at,
        expected,
    )
    .execute(&mut *conn)
    .await?;
    Ok(sqlx::query_as!(
        Bucket,
        r#"-- asking::lock
        select calls, filled_at, cost, suspended_until, coalesce($2, clock_timestamp()) as "now!"
          from settled.asking where destination = $1 for no key update"#,
        destination,
        at,
    )
    .fetch_optional(conn)
    .await?)
}

/// Writes the calls that are left. The caller holds the row.
///
/// # Errors
/// When Postgres does.
pub async fn spend(
    conn: &mut PgConnection,
    destination: &str,
    calls: f64,
    filled_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- asking::spend
        update settled.asking set calls = $2, filled_at = $3,
               suspended_until = case when suspended_until > $3 then suspended_until end,
               suspended_why = case when suspended_until > $3 then suspended_why end
         where destination = $1",
        destination,
        calls,
        filled_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Until when everything was listed, and from now on it is: gives what was written there before. The caller holds the row.
///
/// # Errors
/// When Postgres does.
pub async fn sweep(
    conn: &mut PgConnection,
    destination: &str,
    now: DateTime<Utc>,
    every_seconds: f64,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let before = sqlx::query_scalar!(
        "-- asking::swept\nselect swept_until from settled.asking where destination = $1",
        destination,
    )
    .fetch_optional(&mut *conn)
    .await?
    .flatten();
    let written = sqlx::query!(
        "-- asking::sweep
        update settled.asking set swept_until = $2
         where destination = $1 and (swept_until is null or swept_until <= $2::timestamptz - make_interval(secs => $3))",
        destination,
        now,
        every_seconds,
    )
    .execute(conn)
    .await?;
    Ok(before.filter(|_| written.rows_affected() == 1))
}

/// Settles what one answer took: `expected` calls were charged before. The cost follows by a fifth of the
/// difference, unless nothing was asked.
///
/// # Errors
/// When Postgres does.
pub async fn settle(conn: &mut PgConnection, destination: &str, expected: f64, took: f64) -> Result<(), StoreError> {
    sqlx::query!(
        "-- asking::settle
        update settled.asking set calls = calls + $2 - $3, cost = case when $3::float8 > 0 then greatest(1, cost + ($3 - cost) / 5) else cost end
         where destination = $1",
        destination,
        expected,
        took,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Nobody asks this destination for so many seconds; a longer suspension stands.
///
/// # Errors
/// When Postgres does.
pub async fn suspend(
    conn: &mut PgConnection,
    destination: &str,
    seconds: f64,
    why: &str,
    at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- asking::suspend
        update settled.asking
           set suspended_until = coalesce($4, clock_timestamp()) + make_interval(secs => $2), suspended_why = $3
         where destination = $1
           and (suspended_until is null or suspended_until < coalesce($4, clock_timestamp()) + make_interval(secs => $2))",
        destination,
        seconds,
        why,
        at,
    )
    .execute(conn)
    .await?;
    Ok(())
}
