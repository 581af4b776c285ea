//! `settled.generations`: every downstream that a destination has ever meant.

use sqlx::PgConnection;

use super::error::StoreError;

/// The stored definition of one generation.
///
/// # Errors
/// When Postgres does.
pub async fn definition(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
) -> Result<Option<serde_json::Value>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- generations::definition
        select definition from settled.generations where destination = $1 and generation = $2",
        destination,
        generation,
    )
    .fetch_optional(conn)
    .await?)
}

/// Destinations with questions due, configured or not.
///
/// # Errors
/// When Postgres does.
pub async fn with_questions_due(
    conn: &mut PgConnection,
    at: Option<chrono::DateTime<chrono::Utc>>,
) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- generations::with_questions_due
        select d.name from settled.destinations d
         where (select q.due_at from settled.queue q
                 where q.destination = d.name and q.kind = 'ask'
                   and (q.leased_until is null or q.leased_until < coalesce($1, statement_timestamp()))
                 order by q.due_at limit 1) <= coalesce($1, statement_timestamp())",
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// Parks a destination: nothing is sent to it until somebody has looked. True when it was not parked before.
///
/// # Errors
/// When Postgres does.
pub async fn park(conn: &mut PgConnection, destination: &str, reason: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- destinations::park
        update settled.destinations set parked_at = clock_timestamp(), parked_reason = $2
         where name = $1 and parked_at is null",
        destination,
        reason,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Takes a destination out of parking. False when it was not parked.
///
/// # Errors
/// When Postgres does.
pub async fn unpark(conn: &mut PgConnection, destination: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- destinations::unpark
        update settled.destinations set parked_at = null, parked_reason = null where name = $1 and parked_at is not null",
        destination,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether nothing must be sent to a destination for a tenant now: parked, or one of them or everything paused.
///
/// # Errors
/// When Postgres does.
pub async fn is_stopped(conn: &mut PgConnection, destination: &str, tenant: &str) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- destinations::is_stopped
        select exists (select from settled.destinations d where d.name = $1 and d.parked_at is not null)
            or exists (select from settled.pauses p where p.scope = 'all'
                         or (p.scope = 'destination' and p.name = $1)
                         or (p.scope = 'tenant' and p.name = $2)) as "stopped!""#,
        destination,
        tenant,
    )
    .fetch_one(conn)
    .await?)
}

/// Destinations that left the configuration while intents wait for them.
///
/// # Errors
/// When Postgres does.
pub async fn withdrawn_with_work(conn: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- generations::withdrawn_with_work
        select d.name from settled.destinations d
         where d.withdrawn_at is not null
           and exists (select from settled.queue q where q.destination = d.name and q.kind = 'send')"
    )
    .fetch_all(conn)
    .await?)
}

/// Remembers how the self-test of a generation ended: `None` when it passed.
///
/// # Errors
/// When Postgres does.
pub async fn tested(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    failed: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- generations::tested
        update settled.generations set tested_at = clock_timestamp(), test_failed = $3
         where destination = $1 and generation = $2",
        destination,
        generation,
        failed,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Whether the last self-test of a generation failed; it can then only say Found or nothing.
///
/// # Errors
/// When Postgres does.
pub async fn test_failed(conn: &mut PgConnection, destination: &str, generation: &str) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- generations::test_failed
        select exists (select from settled.generations
                        where destination = $1 and generation = $2 and test_failed is not null) as "failed!""#,
        destination,
        generation,
    )
    .fetch_one(conn)
    .await?)
}
