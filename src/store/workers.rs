//! `settled.workers`: one row per daemon process, with its heartbeat.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// Registers this process; anew where the database has forgotten it.
///
/// # Errors
/// When Postgres does.
pub async fn register(conn: &mut PgConnection, id: Uuid, name: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "-- workers::register
        insert into settled.workers (id, name, version) values ($1, $2, $3) on conflict (id) do nothing",
        id,
        name,
        env!("CARGO_PKG_VERSION"),
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Beats once and returns the number of the heartbeat; `None` where the database does not know the process.
///
/// # Errors
/// When Postgres does.
pub async fn beat(conn: &mut PgConnection, id: Uuid, at: Option<DateTime<Utc>>) -> Result<Option<i64>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- workers::beat
        update settled.workers set heartbeat_at = coalesce($2, clock_timestamp()), beats = beats + 1 where id = $1
        returning beats",
        id,
        at,
    )
    .fetch_optional(conn)
    .await?)
}

/// Says goodbye; what it left open is lapsed at once.
///
/// # Errors
/// When Postgres does.
pub async fn stop(conn: &mut PgConnection, id: Uuid) -> Result<(), StoreError> {
    sqlx::query!("-- workers::stop\nupdate settled.workers set stopped_at = clock_timestamp() where id = $1", id)
        .execute(conn)
        .await?;
    Ok(())
}

/// Removes rows of processes that are long gone and have no open attempt.
///
/// # Errors
/// When Postgres does.
pub async fn prune(conn: &mut PgConnection) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- workers::prune
        delete from settled.workers w
         where w.heartbeat_at < clock_timestamp() - interval '7 days'
           and not exists (select from settled.attempts a where a.closed_at is null and a.worker = w.id)"
    )
    .execute(conn)
    .await?
    .rows_affected())
}
