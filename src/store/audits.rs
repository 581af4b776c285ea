//! `settled.audits`: sends that are asked about although nobody doubts them.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// One send to be asked about.
#[derive(Debug, Clone)]
pub struct Enrolment<'a> {
    /// Which intent.
    pub intent_id: Uuid,
    /// Its destination.
    pub destination: &'a str,
    /// The generation to ask.
    pub generation: &'a str,
    /// The attempt that one effect there is put down to.
    pub attempt: i32,
    /// Start of the first attempt.
    pub sent_from: DateTime<Utc>,
    /// End of the last one.
    pub sent_until: DateTime<Utc>,
    /// When to ask first.
    pub due_at: DateTime<Utc>,
    /// Database time, where a test says so.
    pub now: Option<DateTime<Utc>>,
}

/// Takes an ordinary send into the sample, unless `per_minute` of its destination were taken in the last minute by whatever
/// daemon. Returns whether it was.
///
/// # Errors
/// When Postgres does.
pub async fn sample(conn: &mut PgConnection, e: &Enrolment<'_>, per_minute: u32) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "-- audits::sample
        insert into settled.audits (intent_id, generation, destination, kind, attempt, sent_from, sent_until, enrolled_at, due_at)
        select $1, $2, $3, 'sample', $4, $5, $6, coalesce($8, clock_timestamp()), $7
         where (select count(*) from (
                  select from settled.audits
                   where destination = $3 and generation = $2 and enrolled_at > coalesce($8::timestamptz, statement_timestamp()) - interval '1 minute' limit $9) x) < $9
        on conflict do nothing",
        e.intent_id,
        e.generation,
        e.destination,
        e.attempt,
        e.sent_from,
        e.sent_until,
        e.due_at,
        e.now,
        i64::from(per_minute),
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Has an intent with more than one attempt asked about; once more where it was asked about before.
///
/// # Errors
/// When Postgres does.
pub async fn repeat(conn: &mut PgConnection, e: &Enrolment<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "-- audits::repeat
        insert into settled.audits (intent_id, generation, destination, kind, attempt, sent_from, sent_until, enrolled_at, due_at)
        values ($1, $2, $3, 'repeat', $4, $5, $6, coalesce($8::timestamptz, clock_timestamp()), $7)
        on conflict (intent_id, generation) do update
           set kind = 'repeat', attempt = excluded.attempt, sent_from = excluded.sent_from, sent_until = excluded.sent_until,
               enrolled_at = excluded.enrolled_at, due_at = excluded.due_at, asked = 0, earlier = '[]', invisible_for = null,
               visible_after = null, result = null, closed_at = null, counted_at = null, leased_until = null, token = null",
        e.intent_id,
        e.generation,
        e.destination,
        e.attempt,
        e.sent_from,
        e.sent_until,
        e.due_at,
        e.now,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Destinations with an audit due and no question in doubt due: those go first.
///
/// # Errors
/// When Postgres does.
pub async fn destinations_due(conn: &mut PgConnection, at: Option<DateTime<Utc>>) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- audits::destinations_due
        select d.name from settled.destinations d
         where (select a.due_at from settled.audits a
                 where a.destination = d.name and a.due_at is not null
                   and (a.leased_until is null or a.leased_until < coalesce($1, statement_timestamp()))
                 order by a.due_at limit 1) <= coalesce($1, statement_timestamp())
           and coalesce((select q.due_at from settled.queue q
                 where q.destination = d.name and q.kind = 'ask'
                   and (q.leased_until is null or q.leased_until < coalesce($1, statement_timestamp()))
                 order by q.due_at limit 1) > coalesce($1, statement_timestamp()), true)",
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// An audit that a daemon has taken.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The intent.
    pub intent_id: Uuid,
    /// The generation to ask.
    pub generation: String,
    /// `sample` or `repeat`.
    pub kind: String,
    /// What one effect is put down to.
    pub attempt: i32,
    /// Start of the first attempt.
    pub sent_from: DateTime<Utc>,
    /// End of the last attempt.
    pub sent_until: DateTime<Utc>,
    /// Answers so far.
    pub asked: i32,
    /// Those answers, as the judge counts them.
    pub earlier: Value,
}

/// Leases at most `limit` due audits of a destination.
///
/// # Errors
/// When Postgres does.
pub async fn claim(
    conn: &mut PgConnection,
    destination: &str,
    limit: i64,
    lease_seconds: f64,
    worker: Uuid,
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Taken>, StoreError> {
    Ok(sqlx::query_as!(
        Taken,
        "-- audits::claim
        with due as materialized (
            select a.intent_id, a.generation from settled.audits a
             where a.destination = $1 and a.due_at <= coalesce($5, statement_timestamp())
               and (a.leased_until is null or a.leased_until < coalesce($5, statement_timestamp()))
             order by a.due_at limit $2
               for update skip locked)
        update settled.audits a
           set leased_until = coalesce($5, clock_timestamp()) + make_interval(secs => $3), token = $4
          from due where a.intent_id = due.intent_id and a.generation = due.generation
        returning a.intent_id, a.generation, a.kind, a.attempt, a.sent_from, a.sent_until, a.asked, a.earlier",
        destination,
        limit,
        lease_seconds,
        worker,
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// What an answer changes about an audit.
#[derive(Debug, Clone)]
pub struct Answered<'a> {
    /// The intent.
    pub intent_id: Uuid,
    /// The generation that was asked.
    pub generation: &'a str,
    /// Who holds the lease.
    pub worker: Uuid,
    /// The answers, this one included.
    pub earlier: &'a Value,
    /// It was not there yet so many seconds after its end.
    pub invisible_for: Option<f64>,
    /// It was first seen so many seconds after its end.
    pub visible_after: Option<f64>,
    /// When to ask again; else what came of it.
    pub next: Result<DateTime<Utc>, &'a str>,
    /// Database time.
    pub now: DateTime<Utc>,
}

/// Writes what an answer changes and gives the lease back. False where somebody else holds it by now.
///
/// # Errors
/// When Postgres does.
pub async fn answered(conn: &mut PgConnection, a: &Answered<'_>) -> Result<bool, StoreError> {
    let (due_at, result) = match a.next {
        Ok(at) => (Some(at), None),
        Err(result) => (None, Some(result)),
    };
    let done = sqlx::query!(
        "-- audits::answered
        update settled.audits
           set asked = asked + 1, earlier = $4, invisible_for = coalesce($5, invisible_for),
               visible_after = coalesce(visible_after, $6), due_at = $7, result = $8,
               closed_at = case when $8::text is null then null else $9::timestamptz end, leased_until = null, token = null
         where intent_id = $1 and generation = $2 and token = $3",
        a.intent_id,
        a.generation,
        a.worker,
        a.earlier,
        a.invisible_for,
        a.visible_after,
        due_at,
        result,
        a.now,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Gives back audits of a generation that could not be concluded; they are due again after that time.
///
/// # Errors
/// When Postgres does.
pub async fn put_off(
    conn: &mut PgConnection,
    intents: &[Uuid],
    worker: Uuid,
    seconds: f64,
    at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- audits::put_off
        update settled.audits
           set leased_until = null, token = null, due_at = coalesce($4, clock_timestamp()) + make_interval(secs => $3)
         where intent_id = any($1) and token = $2 and due_at is not null",
        intents,
        worker,
        seconds,
        at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// How long ordinary sends of one generation took to become visible, in seconds.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Measured {
    /// How many were seen.
    pub sends: i64,
    /// Half of them sooner than this.
    pub p50: Option<f64>,
    /// All but one in a thousand.
    pub p999: Option<f64>,
    /// The longest.
    pub longest: Option<f64>,
    /// The longest time after which one was still not visible; it may be visible by now.
    pub invisible_for: Option<f64>,
}

/// What the samples of a generation say that were enrolled within the last `window_seconds`.
///
/// # Errors
/// When Postgres does.
pub async fn measured(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    window_seconds: f64,
    at: Option<DateTime<Utc>>,
) -> Result<Measured, StoreError> {
    Ok(sqlx::query_as!(
        Measured,
        r#"-- audits::measured
        select count(visible_after) as "sends!",
               percentile_disc(0.5) within group (order by visible_after) as p50,
               percentile_disc(0.999) within group (order by visible_after) as p999,
               max(visible_after) as longest, max(invisible_for) as invisible_for
          from settled.audits
         where destination = $1 and generation = $2 and kind = 'sample'
           and enrolled_at > coalesce($4, statement_timestamp()) - make_interval(secs => $3)"#,
        destination,
        generation,
        window_seconds,
        at,
    )
    .fetch_one(conn)
    .await?)
}

/// Missing sends of a destination that closed within the last `window_seconds` and have parked it not yet: their references,
/// eldest first, at most 100.
///
/// # Errors
/// When Postgres does.
pub async fn missing(
    conn: &mut PgConnection,
    destination: &str,
    window_seconds: f64,
    at: DateTime<Utc>,
) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- audits::missing
        select i.reference from settled.audits a join settled.intents i on i.id = a.intent_id
         where a.destination = $1 and a.result = 'not_visible' and a.counted_at is null
           and a.closed_at > $3::timestamptz - make_interval(secs => $2)
         order by a.closed_at limit 100",
        destination,
        window_seconds,
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// The missing ones have parked their destination: they do not do it again once somebody has looked.
///
/// # Errors
/// When Postgres does.
pub async fn counted(conn: &mut PgConnection, destination: &str, at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!(
        "-- audits::counted
        update settled.audits set counted_at = $2
         where destination = $1 and result = 'not_visible' and counted_at is null",
        destination,
        at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Forgets audits that closed longer than `window_seconds` ago, at most `limit`.
///
/// # Errors
/// When Postgres does.
pub async fn forget(
    conn: &mut PgConnection,
    window_seconds: f64,
    at: Option<DateTime<Utc>>,
    limit: i64,
) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- audits::forget
        delete from settled.audits a using (
            select intent_id, generation from settled.audits
             where closed_at < coalesce($2, statement_timestamp()) - make_interval(secs => $1)
             order by closed_at limit $3 for update skip locked) old
         where a.intent_id = old.intent_id and a.generation = old.generation",
        window_seconds,
        at,
        limit,
    )
    .execute(conn)
    .await?
    .rows_affected())
}

/// Database time.
///
/// # Errors
/// When Postgres does.
pub async fn now(conn: &mut PgConnection, at: Option<DateTime<Utc>>) -> Result<DateTime<Utc>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- audits::now
        select coalesce($1, clock_timestamp()) as "now!""#,
        at
    )
    .fetch_one(conn)
    .await?)
}
