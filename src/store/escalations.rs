//! `settled.escalations` and `settled.decisions`: a person must decide, and what they decided.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;
use crate::domain::reason::Reason;

pub mod handling;
pub mod reading;

/// Opens an escalation about an intent, unless the same reason is already open for it. Returns whether it is new.
///
/// # Errors
/// When Postgres does.
pub async fn raise(
    conn: &mut PgConnection,
    intent_id: Uuid,
    reason: Reason,
    summary: &str,
    detail: &Value,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::raise
        insert into settled.escalations (id, subject, intent_id, destination, tenant, reason, cause, summary, detail, opened_at)
        select $2, 'intent', id, destination, tenant, $3, $3 || '/' || destination, $4, $5, $6
          from settled.intents where id = $1
        on conflict do nothing",
        intent_id,
        Uuid::now_v7(),
        reason.as_str(),
        summary,
        detail,
        at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// As [`raise`], in a group of its own: intents of several destinations with one cause.
///
/// # Errors
/// When Postgres does.
pub async fn raise_in(
    conn: &mut PgConnection,
    intent_id: Uuid,
    reason: Reason,
    cause: &str,
    summary: &str,
    detail: &Value,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::raise_in
        insert into settled.escalations (id, subject, intent_id, destination, tenant, reason, cause, summary, detail, opened_at)
        select $2, 'intent', id, destination, tenant, $3, $7, $4, $5, $6
          from settled.intents where id = $1
        on conflict do nothing",
        intent_id,
        Uuid::now_v7(),
        reason.as_str(),
        summary,
        detail,
        at,
        cause,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Opens an escalation about a destination.
///
/// # Errors
/// When Postgres does.
pub async fn raise_destination(
    conn: &mut PgConnection,
    destination: &str,
    reason: Reason,
    summary: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::raise_destination
        insert into settled.escalations (id, subject, destination, reason, cause, summary)
        values ($1, 'destination', $2, $3, $3 || '/' || $2, $4)
        on conflict do nothing",
        Uuid::now_v7(),
        destination,
        reason.as_str(),
        summary,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Opens an `orphan_sighting`: something was seen downstream that no row explains. One for a destination at a time; what each
/// of them was stands in `settled.sightings`.
///
/// # Errors
/// When Postgres does.
pub async fn raise_sighting(
    conn: &mut PgConnection,
    destination: &str,
    tenant: &str,
    summary: &str,
    detail: &Value,
    at: Option<DateTime<Utc>>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- escalations::raise_sighting
        insert into settled.escalations (id, subject, destination, tenant, reason, cause, summary, detail, opened_at)
        values ($1, 'sighting', $2, $3, $4, $4 || '/' || $2, $5, $6, coalesce($7, clock_timestamp()))
        on conflict do nothing",
        Uuid::now_v7(),
        destination,
        tenant,
        Reason::OrphanSighting.as_str(),
        summary,
        detail,
        at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Closes what is open about a destination for this reason.
///
/// # Errors
/// When Postgres does.
pub async fn close_destination(
    conn: &mut PgConnection,
    destination: &str,
    reason: Reason,
    by: &str,
    resolution: &str,
) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- escalations::close_destination
        update settled.escalations
           set closed_at = clock_timestamp(), closed_by = $3, resolution = $4, version = version + 1
         where subject = 'destination' and destination = $1 and reason = $2 and closed_at is null",
        destination,
        reason.as_str(),
        by,
        resolution,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// Closes what was told about a destination that nothing got through to; one that is parked stays with people.
///
/// # Errors
/// When Postgres does.
pub async fn close_reachable(
    conn: &mut PgConnection,
    destination: &str,
    reason: Reason,
    by: &str,
) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- escalations::close_reachable
        update settled.escalations
           set closed_at = clock_timestamp(), closed_by = $3, resolution = 'it gets through again', version = version + 1
         where subject = 'destination' and destination = $1 and reason = $2 and closed_at is null
           and (select d.parked_at from settled.destinations d where d.name = $1) is null",
        destination,
        reason.as_str(),
        by,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// Closes open escalations of an intent whose reason is among `reasons`; those about a refused request stay.
///
/// # Errors
/// When Postgres does.
pub async fn close(
    conn: &mut PgConnection,
    intent_id: Uuid,
    reasons: &[String],
    by: &str,
    resolution: &str,
    at: DateTime<Utc>,
) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- escalations::close
        update settled.escalations
           set closed_at = $5, closed_by = $3, resolution = $4, version = version + 1
         where intent_id = $1 and subject = 'intent' and closed_at is null and reason = any($2)",
        intent_id,
        reasons,
        by,
        resolution,
        at,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// A decision whose time has come.
#[derive(Debug, Clone)]
pub struct DueDecision {
    /// Its id.
    pub id: Uuid,
    /// The intent.
    pub intent_id: Uuid,
    /// Who decided.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// New deadline and the like.
    pub detail: Value,
}

/// Decisions that bind from now on, at most `limit`, oldest first. Lock the intent, then see whether it is [`still_due`].
///
/// # Errors
/// When Postgres does.
pub async fn decisions_due(
    conn: &mut PgConnection,
    at: Option<DateTime<Utc>>,
    limit: i64,
) -> Result<Vec<DueDecision>, StoreError> {
    Ok(sqlx::query_as!(
        DueDecision,
        "-- decisions::due
        select id, intent_id, actor, reason, detail from settled.decisions
         where applied_at is null and stopped_at is null and effective_at <= coalesce($1, statement_timestamp())
         order by effective_at limit $2",
        at,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks a decision: whether it was neither applied nor stopped meanwhile. The caller holds the intent's row.
///
/// # Errors
/// When Postgres does.
pub async fn still_due(conn: &mut PgConnection, id: Uuid) -> Result<bool, StoreError> {
    let row = sqlx::query_scalar!(
        "-- decisions::still_due
        select id from settled.decisions where id = $1 and applied_at is null and stopped_at is null for update",
        id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.is_some())
}

/// Marks a decision as applied, with what came of it.
///
/// # Errors
/// When Postgres does.
pub async fn decision_applied(
    conn: &mut PgConnection,
    id: Uuid,
    result: &str,
    at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- decisions::applied
        update settled.decisions set applied_at = $2, result = $3 where id = $1",
        id,
        at,
        result,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Records a decision that binds later.
///
/// # Errors
/// When Postgres does.
pub async fn decide(
    conn: &mut PgConnection,
    intent_id: Uuid,
    actor: &str,
    reason: &str,
    detail: &Value,
    now: DateTime<Utc>,
    effective_at: DateTime<Utc>,
) -> Result<Uuid, StoreError> {
    let id = Uuid::now_v7();
    sqlx::query!(
        "-- decisions::decide
        insert into settled.decisions (id, intent_id, act, actor, reason, detail, made_at, effective_at)
        values ($1, $2, 'send_again', $3, $4, $5, $6, $7)",
        id,
        intent_id,
        actor,
        reason,
        detail,
        now,
        effective_at,
    )
    .execute(conn)
    .await?;
    Ok(id)
}

/// A decision about an intent that neither binds nor was stopped.
///
/// # Errors
/// When Postgres does.
pub async fn open_decision(conn: &mut PgConnection, intent_id: Uuid) -> Result<Option<DueDecision>, StoreError> {
    Ok(sqlx::query_as!(
        DueDecision,
        "-- decisions::open
        select id, intent_id, actor, reason, detail from settled.decisions
         where intent_id = $1 and applied_at is null and stopped_at is null",
        intent_id,
    )
    .fetch_optional(conn)
    .await?)
}

/// Stops a decision that does not bind yet. False when there is none to stop.
///
/// # Errors
/// When Postgres does.
pub async fn stop_decision(
    conn: &mut PgConnection,
    intent_id: Uuid,
    actor: &str,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- decisions::stop
        update settled.decisions set stopped_at = $3, stopped_by = $2
         where intent_id = $1 and applied_at is null and stopped_at is null",
        intent_id,
        actor,
        at,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Tells people of unsettled intents whose deadline is within `near_seconds`; each once while it stays open.
///
/// # Errors
/// When Postgres does.
pub async fn deadline_near(
    conn: &mut PgConnection,
    near_seconds: f64,
    at: Option<DateTime<Utc>>,
    limit: i64,
) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "-- escalations::deadline_near
        insert into settled.escalations (id, subject, intent_id, destination, tenant, reason, cause, summary, opened_at)
        select gen_random_uuid(), 'intent', i.id, i.destination, i.tenant, 'deadline_near', 'deadline_near/' || i.destination,
               upper(i.reference) || ' to ' || i.destination || ' is not settled and its deadline is near',
               coalesce($2, statement_timestamp())
          from settled.queue q join settled.intents i on i.id = q.intent_id
         where q.deadline > coalesce($2, statement_timestamp())
           and q.deadline <= coalesce($2, statement_timestamp()) + make_interval(secs => $1)
           -- Whoever gave less time than the warning takes was not to be warned.
           and i.created_at < q.deadline - make_interval(secs => $1)
           and i.state in ('held', 'pending', 'unknown')
           -- A scalar, so that it is looked up for each row and never by a scan of all escalations.
           and (select e.id from settled.escalations e
                 where e.intent_id = i.id and e.reason = 'deadline_near' limit 1) is null
         order by q.deadline limit $3
        on conflict do nothing",
        near_seconds,
        at,
        limit,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}
