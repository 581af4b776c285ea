//! `settled.attempts`: what was tried, by whom, and what was seen.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;
use crate::domain::{
    evidence::{Attempt, AttemptKind},
    outcome::Ended,
};

/// An attempt's row.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    /// As the fold sees it.
    pub attempt: Attempt,
    /// Fence of every later write.
    pub token: Uuid,
    /// Who claimed it.
    pub worker: Uuid,
    /// Generation that was sent to.
    pub generation: String,
    /// Claim, database clock.
    pub claimed_at: DateTime<Utc>,
    /// End of the lease.
    pub lease_until: DateTime<Utc>,
    /// From when no byte can still leave.
    pub closure_at: Option<DateTime<Utc>>,
    /// Until when a replay is answered from the downstream's store.
    pub replay_until: Option<DateTime<Utc>>,
    /// Digest of the rendering.
    pub digest: Option<Vec<u8>>,
    /// The end, where it has one.
    pub ended: Option<Ended>,
}

/// All attempts of an intent, by number. The caller holds the intent's row.
///
/// # Errors
/// When Postgres does, or a report is not readable.
pub async fn of(conn: &mut PgConnection, intent_id: Uuid) -> Result<Vec<AttemptRow>, StoreError> {
    let rows = sqlx::query!(
        "-- attempts::of
        select number, kind, token, worker, generation, claimed_at, lease_until, replay_until, digest, closure_at, report
          from settled.attempts where intent_id = $1 order by number",
        intent_id,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let ended = row.report.map(serde_json::from_value::<Ended>).transpose().map_err(|e| {
                StoreError::Inconsistent { table: "attempts", column: "report", row: intent_id, why: e.to_string() }
            })?;
            let kind = if row.kind == "replay" { AttemptKind::Replay } else { AttemptKind::Send };
            Ok(AttemptRow {
                attempt: Attempt { number: row.number, kind, outcome: ended.as_ref().map(|e| e.outcome.clone()) },
                token: row.token,
                worker: row.worker,
                generation: row.generation,
                claimed_at: row.claimed_at,
                lease_until: row.lease_until,
                closure_at: row.closure_at,
                replay_until: row.replay_until,
                digest: row.digest,
                ended,
            })
        })
        .collect()
}

/// Opens an attempt; the caller holds the intent's row and has pinned its key.
#[derive(Debug, Clone)]
pub struct Opening<'a> {
    /// The intent.
    pub intent_id: Uuid,
    /// Its next number.
    pub number: i32,
    /// Send or replay.
    pub kind: AttemptKind,
    /// Random fence.
    pub token: Uuid,
    /// Who.
    pub worker: Uuid,
    /// Generation that will be sent to.
    pub generation: &'a str,
    /// Database time.
    pub now: DateTime<Utc>,
    /// End of the lease.
    pub lease_until: DateTime<Utc>,
}

/// Opens one attempt outside the batch claim (replays).
///
/// # Errors
/// When Postgres does.
pub async fn open(conn: &mut PgConnection, o: &Opening<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "-- attempts::open
        with opened as (
            insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until)
            values ($1, $2, $3, $4, $5, $6, $7, $8) returning intent_id, number),
        told as (
            insert into settled.journal (intent_id, at, kind, attempt, actor, data)
            select intent_id, $7, 'move', number, 'reconciler@' || $5::uuid,
                   jsonb_build_object('from', 'unknown', 'to', 'in_flight', 'kind', $3::text)
              from opened),
        leased as (
            update settled.queue set leased_until = $8, token = $4 where intent_id = $1)
        update settled.intents set attempt = $2, state = 'in_flight' where id = $1",
        o.intent_id,
        o.number,
        o.kind.as_str(),
        o.token,
        o.worker,
        o.generation,
        o.now,
        o.lease_until,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Closes an attempt with what it learned. `closure_at` is when no byte of it could leave any more.
///
/// Returns false when the attempt is not open under this token: the result is then evidence for a row that has moved on.
///
/// # Errors
/// When Postgres does.
pub async fn close(
    conn: &mut PgConnection,
    intent_id: Uuid,
    number: i32,
    token: Uuid,
    ended: &Ended,
    digest: Option<&[u8]>,
    at: DateTime<Utc>,
    closure_at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let report = serde_json::to_value(ended).unwrap_or_default();
    let done = sqlx::query!(
        "-- attempts::close
        update settled.attempts
           set closed_at = $5, outcome = $4, report = $6, closure_at = $7, digest = coalesce($8, digest)
         where intent_id = $1 and number = $2 and token = $3 and closed_at is null",
        intent_id,
        number,
        token,
        ended.outcome.as_str(),
        at,
        report,
        closure_at,
        digest,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether an attempt was claimed under this token. The caller holds the intent's row, so a claim that is being committed is
/// waited for.
///
/// # Errors
/// When Postgres does.
pub async fn exists(conn: &mut PgConnection, intent_id: Uuid, number: i32, token: Uuid) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- attempts::exists
        select exists (select from settled.attempts where intent_id = $1 and number = $2 and token = $3) as "exists!""#,
        intent_id,
        number,
        token,
    )
    .fetch_one(conn)
    .await?)
}

/// An attempt whose lease has lapsed or whose worker is dead.
#[derive(Debug, Clone)]
pub struct Lapsed {
    /// The intent.
    pub intent_id: Uuid,
    /// The attempt.
    pub number: i32,
    /// Its fence.
    pub token: Uuid,
    /// End of its lease: the earliest closure.
    pub lease_until: DateTime<Utc>,
    /// The lease has ended; otherwise its worker is dead and the lease still runs.
    pub lease_ended: bool,
}

/// What the reaper knows beside the clock of the database.
#[derive(Debug, Clone)]
pub struct Lapse<'a> {
    /// Seconds after which a silent worker is dead.
    pub heartbeat_limit: f64,
    /// When this process began, database clock: it has watched that clock since.
    pub began_at: DateTime<Utc>,
    /// Seconds since then by its own clock.
    pub uptime: f64,
    /// Destinations that are left alone, because the clock has stepped.
    pub distrusted: &'a [String],
}

/// Open attempts that nobody will finish, at most `limit`, oldest lease first. A lease that began before this process is over
/// when the process has itself seen it that long.
///
/// # Errors
/// When Postgres does.
pub async fn lapsed(
    conn: &mut PgConnection,
    at: Option<DateTime<Utc>>,
    lapse: &Lapse<'_>,
    limit: i64,
) -> Result<Vec<Lapsed>, StoreError> {
    Ok(sqlx::query_as!(
        Lapsed,
        r#"-- attempts::lapsed
        select a.intent_id, a.number, a.token, a.lease_until, a.lease_until <= coalesce($1, clock_timestamp()) as "lease_ended!"
          from settled.attempts a
          left join settled.workers w on w.id = a.worker
         where a.closed_at is null
           and ((a.lease_until <= coalesce($1, clock_timestamp())
                 and (a.claimed_at >= $4 or a.lease_until - a.claimed_at <= make_interval(secs => $5)))
                or w.id is null or w.stopped_at is not null
                or w.heartbeat_at < coalesce($1, clock_timestamp()) - make_interval(secs => $2))
           and not exists (select from settled.intents i where i.id = a.intent_id and i.destination = any ($6))
         order by a.lease_until
         limit $3"#,
        at,
        lapse.heartbeat_limit,
        limit,
        lapse.began_at,
        lapse.uptime,
        lapse.distrusted,
    )
    .fetch_all(conn)
    .await?)
}

/// Attempts of a destination that are open now, counted up to `cap`: each may end in doubt. Read along the index of open
/// attempts, which holds what the whole fleet has under way.
///
/// # Errors
/// When Postgres does.
pub async fn under_way(conn: &mut PgConnection, destination: &str, cap: i64) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- attempts::under_way
        select count(*) as "count!" from (
            select a.intent_id from settled.attempts a
             where a.closed_at is null
               and (select i.destination from settled.intents i where i.id = a.intent_id) = $1
             order by a.lease_until limit $2) x"#,
        destination,
        cap,
    )
    .fetch_one(conn)
    .await?)
}

/// Whether an attempt is still the open one of an intent in flight.
///
/// # Errors
/// When Postgres does.
pub async fn still_open(pool: &sqlx::PgPool, intent_id: Uuid, number: i32, token: Uuid) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- attempts::still_open
        select exists (
            select from settled.attempts a join settled.intents i on i.id = a.intent_id
             where a.intent_id = $1 and a.number = $2 and a.token = $3 and a.closed_at is null
               and i.state = 'in_flight' and i.attempt = $2
               and not exists (select from settled.pauses p where p.scope = 'all'
                                or (p.scope = 'destination' and p.name = i.destination)
                                or (p.scope = 'tenant' and p.name = i.tenant))) as "open!""#,
        intent_id,
        number,
        token,
    )
    .fetch_one(pool)
    .await?)
}
