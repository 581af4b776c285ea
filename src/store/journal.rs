//! `settled.journal`: append-only. Evidence is never refused; the fold reads it from here.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// One row to append.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// Its intent, if it has one.
    pub intent_id: Option<Uuid>,
    /// Database time.
    pub at: Option<DateTime<Utc>>,
    /// `look_up`, `act`, `evidence`, `history`, `conflict`, `administration`.
    pub kind: &'a str,
    /// The attempt it is about.
    pub attempt: Option<i32>,
    /// Who.
    pub actor: &'a str,
    /// What.
    pub data: Value,
}

/// Appends a row and returns its id.
///
/// # Errors
/// When Postgres does.
pub async fn append(conn: &mut PgConnection, entry: &Entry<'_>) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- journal::append
        insert into settled.journal (intent_id, at, kind, attempt, actor, data)
        values ($1, coalesce($2, clock_timestamp()), $3, $4, $5, $6) returning id",
        entry.intent_id,
        entry.at,
        entry.kind,
        entry.attempt,
        entry.actor,
        entry.data,
    )
    .fetch_one(conn)
    .await?)
}

/// A row that the fold reads.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its id, in the order of arrival.
    pub id: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// `look_up`, `act`, `evidence` or `history`.
    pub kind: String,
    /// The attempt it is about.
    pub attempt: Option<i32>,
    /// Who.
    pub actor: String,
    /// What.
    pub data: Value,
}

/// All look-ups, acts, late evidence and losses of history of an intent, oldest first. The caller holds the intent's row.
///
/// # Errors
/// When Postgres does.
pub async fn evidence_of(conn: &mut PgConnection, intent_id: Uuid) -> Result<Vec<Told>, StoreError> {
    Ok(sqlx::query_as!(
        Told,
        "-- journal::evidence_of
        select id, at, kind, attempt, actor, data from settled.journal
         where intent_id = $1 and kind in ('look_up', 'act', 'evidence', 'history') order by id",
        intent_id,
    )
    .fetch_all(conn)
    .await?)
}

/// Acts, moves and look-ups of an intent, newest first, at most `limit`.
///
/// A first attempt that was simply taken moved its intent without a row here: that move is read from the attempt, as row 0.
///
/// # Errors
/// When Postgres does.
pub async fn newest(conn: &mut PgConnection, intent_id: Uuid, limit: i64) -> Result<Vec<Told>, StoreError> {
    Ok(sqlx::query_as!(
        Told,
        r#"-- journal::newest
        select id as "id!", at as "at!", kind as "kind!", attempt, actor as "actor!", data as "data!" from (
            (select id as place, id, at, kind, attempt, actor, data from settled.journal
              where intent_id = $1 and kind in ('act', 'move', 'look_up') order by id desc limit $2)
            union all
            select coalesce((select max(j.id) from settled.journal j where j.intent_id = $1 and j.at <= a.closed_at), 0),
                   0, a.closed_at, 'move', a.number, 'dispatcher@' || a.worker, '{"from": "in_flight", "to": "sent"}'
              from settled.attempts a
             where a.intent_id = $1 and a.number = 1 and a.outcome = 'sent'
               and not exists (select from settled.journal j
                                where j.intent_id = $1 and j.kind = 'move' and j.attempt = 1 and j.data ->> 'to' = 'sent')) told
         order by place desc, id limit $2"#,
        intent_id,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// One row about an intent.
///
/// # Errors
/// When Postgres does.
pub async fn row(conn: &mut PgConnection, intent_id: Uuid, id: i64) -> Result<Option<Told>, StoreError> {
    Ok(sqlx::query_as!(
        Told,
        "-- journal::row
        select id, at, kind, attempt, actor, data from settled.journal where intent_id = $1 and id = $2",
        intent_id,
        id,
    )
    .fetch_optional(conn)
    .await?)
}
