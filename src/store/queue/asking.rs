//! The questions of the queue: leased, put off, freed, hurried.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::error::StoreError;

/// Leases at most `limit` due questions of a destination to a worker, those that a person waits for first; a lapsed lease is
/// simply taken over, since asking harms nobody.
///
/// # Errors
/// When Postgres does.
pub async fn claim_questions(
    conn: &mut PgConnection,
    destination: &str,
    limit: i64,
    lease_seconds: f64,
    worker: Uuid,
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Uuid>, StoreError> {
    let urgent = sqlx::query_scalar!(
        "-- queue::claim_questions (urgent)
        with due as materialized (
            select q.intent_id from settled.queue q
             where q.destination = $1 and q.urgent and q.kind = 'ask' and q.due_at <= coalesce($5, statement_timestamp())
               and (q.leased_until is null or q.leased_until < coalesce($5, statement_timestamp()))
             order by q.due_at limit $2
               for update skip locked)
        update settled.queue q
           set leased_until = coalesce($5, clock_timestamp()) + make_interval(secs => $3), token = $4
          from due where q.intent_id = due.intent_id
        returning q.intent_id",
        destination,
        limit,
        lease_seconds,
        worker,
        at,
    )
    .fetch_all(&mut *conn)
    .await?;
    let left = limit - i64::try_from(urgent.len()).unwrap_or(limit);
    if left <= 0 {
        return Ok(urgent);
    }
    let due = sqlx::query_scalar!(
        "-- queue::claim_questions
        with due as materialized (
            select q.intent_id from settled.queue q
             where q.destination = $1 and q.kind = 'ask' and q.due_at <= coalesce($5, statement_timestamp())
               and (q.leased_until is null or q.leased_until < coalesce($5, statement_timestamp()))
             order by q.due_at limit $2
               for update skip locked)
        update settled.queue q
           set leased_until = coalesce($5, clock_timestamp()) + make_interval(secs => $3), token = $4
          from due where q.intent_id = due.intent_id
        returning q.intent_id",
        destination,
        left,
        lease_seconds,
        worker,
        at,
    )
    .fetch_all(conn)
    .await?;
    Ok(urgent.into_iter().chain(due).collect())
}

/// Gives back questions that a worker leased and could not conclude; they are due again after that time.
///
/// # Errors
/// When Postgres does.
pub async fn put_off_questions(
    conn: &mut PgConnection,
    intents: &[Uuid],
    worker: Uuid,
    seconds: f64,
    at: Option<DateTime<Utc>>,
) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- queue::put_off_questions
        update settled.queue
           set leased_until = null, token = null, due_at = coalesce($4, clock_timestamp()) + make_interval(secs => $3)
         where intent_id = any($1) and kind = 'ask' and token = $2",
        intents,
        worker,
        seconds,
        at,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// Frees questions that dead workers hold: nobody will write their answers.
///
/// # Errors
/// When Postgres does.
pub async fn free_questions(
    conn: &mut PgConnection,
    at: Option<DateTime<Utc>>,
    heartbeat_limit_seconds: f64,
) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- queue::free_questions
        update settled.queue q set leased_until = null, token = null
          from settled.destinations d, settled.workers w
         where q.destination = d.name and q.kind = 'ask' and q.due_at <= coalesce($1, statement_timestamp())
           and q.leased_until is not null and w.id = q.token
           and (w.stopped_at is not null
                or w.heartbeat_at < coalesce($1, clock_timestamp()) - make_interval(secs => $2))",
        at,
        heartbeat_limit_seconds,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// Frees questions that are leased to this worker without its knowing: the answer to its claim was lost.
///
/// # Errors
/// When Postgres does.
pub async fn free_unknown_questions(conn: &mut PgConnection, known: &[Uuid], worker: Uuid) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- queue::free_unknown_questions
        update settled.queue set leased_until = null, token = null
         where kind = 'ask' and token = $2 and not intent_id = any($1)",
        known,
        worker,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// A person waits for the next question about an intent. The caller has just put it.
///
/// # Errors
/// When Postgres does.
pub async fn hurry(conn: &mut PgConnection, intent_id: Uuid) -> Result<(), StoreError> {
    sqlx::query!(
        "-- queue::hurry\nupdate settled.queue set urgent = true where intent_id = $1 and kind = 'ask'",
        intent_id
    )
    .execute(conn)
    .await?;
    Ok(())
}
