//! Who takes care of an escalation. Every write is a compare-and-set on its version; false means that somebody was faster.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::error::StoreError;

/// Locks an escalation and returns the database's clock. `None` when it is not there.
///
/// # Errors
/// When Postgres does.
pub async fn lock(
    conn: &mut PgConnection,
    id: Uuid,
    at: Option<DateTime<Utc>>,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- escalations::lock
        select coalesce($2, clock_timestamp()) as "now!" from settled.escalations where id = $1 for update"#,
        id,
        at,
    )
    .fetch_optional(conn)
    .await?)
}

/// Somebody takes it, or takes it over.
///
/// # Errors
/// When Postgres does.
pub async fn claim(
    conn: &mut PgConnection,
    id: Uuid,
    version: i64,
    by: &str,
    until: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::claim
        update settled.escalations set claimed_by = $3, claimed_until = $4, version = version + 1
         where id = $1 and version = $2 and closed_at is null",
        id,
        version,
        by,
        until,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Nobody has it any more.
///
/// # Errors
/// When Postgres does.
pub async fn release(conn: &mut PgConnection, id: Uuid, version: i64) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::release
        update settled.escalations set claimed_by = null, claimed_until = null, version = version + 1
         where id = $1 and version = $2 and closed_at is null",
        id,
        version,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Out of the ordinary list until then.
///
/// # Errors
/// When Postgres does.
pub async fn snooze(conn: &mut PgConnection, id: Uuid, version: i64, until: DateTime<Utc>) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::snooze
        update settled.escalations set snoozed_until = $3, version = version + 1
         where id = $1 and version = $2 and closed_at is null",
        id,
        version,
        until,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// It is this person's.
///
/// # Errors
/// When Postgres does.
pub async fn assign(conn: &mut PgConnection, id: Uuid, version: i64, to: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::assign
        update settled.escalations set assigned_to = $3, version = version + 1
         where id = $1 and version = $2 and closed_at is null",
        id,
        version,
        to,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A person has seen to it: what it reports stays true, and nobody is asked any more.
///
/// # Errors
/// When Postgres does.
pub async fn acknowledge(
    conn: &mut PgConnection,
    id: Uuid,
    version: i64,
    by: &str,
    resolution: &str,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::acknowledge
        update settled.escalations set closed_at = $5, closed_by = $3, resolution = $4, version = version + 1
         where id = $1 and version = $2 and closed_at is null",
        id,
        version,
        by,
        resolution,
        at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
