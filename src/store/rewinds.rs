//! `settled.rewinds`: history that was lost, and the quarantine after it.
//!
//! [`record`] writes one row for one rewind, whoever notices it: it replaces `settled.instance.history`, and only the first
//! one finds the old value there.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;
use crate::domain::{
    reason::Reason,
    rewind::{Found, LostAttempts, Memory, Position},
    state::State,
};

/// What a process finds, and until when the ledger's memory certainly reaches.
#[derive(Debug, Clone)]
pub struct Look {
    /// Position, what is written down of it, and this process in it.
    pub found: Found,
    /// Newest heartbeat of any process: what was written until then is there.
    pub known_until: DateTime<Utc>,
    /// Database clock.
    pub now: DateTime<Utc>,
}

/// Looks where the database stands. `None` before it was claimed for an installation.
///
/// # Errors
/// When Postgres does; a standby cannot tell its position.
pub async fn look(
    conn: &mut PgConnection,
    worker: Uuid,
    at: Option<DateTime<Utc>>,
) -> Result<Option<Look>, StoreError> {
    let row = sqlx::query!(
        r#"-- rewinds::look
        select s.system_identifier::text as "system!",
               ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer as "timeline!",
               (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as "lsn!",
               i.system_identifier as recorded_system, i.timeline as recorded_timeline, i.history,
               (select w.beats from settled.workers w where w.id = $1) as beats,
               coalesce((select max(w.heartbeat_at) from settled.workers w), i.created_at) as "known_until!",
               coalesce($2, clock_timestamp()) as "now!"
          from settled.instance i, pg_control_system() s"#,
        worker,
        at,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Look {
        found: Found {
            position: Position { system: row.system, timeline: row.timeline, lsn: row.lsn, history: row.history },
            recorded_system: row.recorded_system,
            recorded_timeline: row.recorded_timeline,
            beats: row.beats,
        },
        known_until: row.known_until,
        now: row.now,
    }))
}

/// The first statement of a transaction that claims: makes it durable, and says where the database stands and whether a
/// quarantine forbids claims. No position before the database was claimed for an installation.
///
/// # Errors
/// When Postgres does.
pub async fn enter(conn: &mut PgConnection, at: Option<DateTime<Utc>>) -> Result<(Option<Position>, bool), StoreError> {
    let row = sqlx::query!(
        r#"-- rewinds::enter
        select set_config('synchronous_commit', 'on', true) as "durable!",
               s.system_identifier::text as "system!",
               ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer as "timeline!",
               (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as "lsn!",
               (select i.history from settled.instance i) as history,
               not exists (select from settled.rewinds w
                            where w.ended_at is null
                              and (w.walked_at is null or w.quiet_until > coalesce($1, statement_timestamp())
                                   or (w.needs_person and w.lifted_at is null))) as "open!"
          from pg_control_system() s"#,
        at,
    )
    .fetch_one(conn)
    .await?;
    let position =
        row.history.map(|history| Position { system: row.system, timeline: row.timeline, lsn: row.lsn, history });
    Ok((position, row.open))
}

/// A rewind that was noticed.
#[derive(Debug, Clone)]
pub struct Noticed<'a> {
    /// Where the database stands.
    pub look: &'a Look,
    /// What this process remembered.
    pub memory: Option<&'a Memory>,
    /// What gave it away.
    pub why: &'a str,
    /// Another cluster.
    pub copy: bool,
    /// Who noticed it.
    pub worker: Uuid,
    /// A lost attempt began later.
    pub known_until: DateTime<Utc>,
    /// No byte of a lost attempt can leave after that.
    pub closure_at: DateTime<Utc>,
    /// Nothing is claimed before.
    pub quiet_until: DateTime<Utc>,
    /// New intents are asked about first until then.
    pub ask_first_until: DateTime<Utc>,
}

/// Writes a rewind down, with its escalation and journal row. `None`: another process has done so meanwhile.
///
/// # Errors
/// When Postgres does.
pub async fn record(conn: &mut PgConnection, noticed: &Noticed<'_>) -> Result<Option<(i32, Uuid)>, StoreError> {
    let position = &noticed.look.found.position;
    let history = Uuid::new_v4();
    let first = sqlx::query!(
        "-- rewinds::leave
        update settled.instance set history = $1, system_identifier = $2, timeline = $3 where history = $4",
        history,
        position.system,
        position.timeline,
        position.history,
    )
    .execute(&mut *conn)
    .await?;
    if first.rows_affected() == 0 {
        return Ok(None);
    }
    let remembered = noticed.memory.map_or(Value::Null, |memory| json!(memory));
    let (seen, now) = (json!({ "position": position, "beats": noticed.look.found.beats }), noticed.look.now);
    let number = sqlx::query_scalar!(
        r#"-- rewinds::record
        insert into settled.rewinds (number, history, noticed_at, noticed_by, why, remembered, seen, known_until, closure_at,
                                     quiet_until, ask_first_until, needs_person)
        select coalesce(max(number), 0) + 1, $1, $2::timestamptz, $3, $4, $5, $6, least($7::timestamptz, $2::timestamptz), $8, $9, $10, $11
          from settled.rewinds
        returning number as "number!""#,
        history,
        now,
        noticed.worker,
        noticed.why,
        remembered,
        seen,
        noticed.known_until,
        noticed.closure_at,
        noticed.quiet_until,
        noticed.ask_first_until,
        noticed.copy,
    )
    .fetch_one(&mut *conn)
    .await?;
    let summary = format!("the database lost history: {}", noticed.why);
    let reason = Reason::LedgerRewound.as_str();
    sqlx::query!(
        "-- rewinds::raise
        with told as (
            insert into settled.journal (at, kind, actor, data)
            values ($4, 'administration', 'watch@' || $5::uuid,
                    jsonb_build_object('act', 'rewind', 'rewind', $6::integer, 'why', $3::text)))
        insert into settled.escalations (id, subject, reason, cause, summary, detail, opened_at)
        values ($1, 'instance', $2, $2, $3, jsonb_build_object('rewind', $6::integer), $4)
        on conflict do nothing",
        Uuid::now_v7(),
        reason,
        summary,
        now,
        noticed.worker,
        number,
    )
    .execute(conn)
    .await?;
    Ok(Some((number, history)))
}

/// A rewind whose quarantine has not ended.
#[derive(Debug, Clone, Serialize)]
pub struct Rewind {
    /// 1, 2, …
    pub number: i32,
    /// When it was noticed.
    pub noticed_at: DateTime<Utc>,
    /// What gave it away.
    pub why: String,
    /// A lost attempt began later.
    pub known_until: DateTime<Utc>,
    /// No byte of a lost attempt can leave after that.
    pub closure_at: DateTime<Utc>,
    /// Nothing is claimed before.
    pub quiet_until: DateTime<Utc>,
    /// New intents are asked about first until then.
    pub ask_first_until: DateTime<Utc>,
    /// Nothing is sent until a person says that this copy may.
    pub needs_person: bool,
    /// Intents up to this id are in doubt by now.
    pub walked_to: Uuid,
    /// All are.
    pub walked_at: Option<DateTime<Utc>>,
    /// When a person lifted it.
    pub lifted_at: Option<DateTime<Utc>>,
    /// Who.
    pub lifted_by: Option<String>,
    /// Why.
    pub lifted_because: Option<String>,
}

/// Quarantines in force, oldest first.
///
/// # Errors
/// When Postgres does.
pub async fn open(conn: &mut PgConnection) -> Result<Vec<Rewind>, StoreError> {
    Ok(sqlx::query_as!(
        Rewind,
        "-- rewinds::open
        select number, noticed_at, why, known_until, closure_at, quiet_until, ask_first_until, needs_person, walked_to, walked_at,
               lifted_at, lifted_by, lifted_because
          from settled.rewinds where ended_at is null order by number",
    )
    .fetch_all(conn)
    .await?)
}

/// Locks a quarantine for its walk over the intents; `None` while another process walks, and when it is over.
///
/// # Errors
/// When Postgres does.
pub async fn lock_walk(conn: &mut PgConnection, number: i32) -> Result<Option<Uuid>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- rewinds::lock_walk
        select walked_to from settled.rewinds where number = $1 and walked_at is null for update skip locked",
        number,
    )
    .fetch_optional(conn)
    .await?)
}

/// The next stretch of all intents, by id.
///
/// # Errors
/// When Postgres does, or a state is not readable.
pub async fn stretch(conn: &mut PgConnection, after: Uuid, limit: i64) -> Result<Vec<(Uuid, State)>, StoreError> {
    let rows = sqlx::query!(
        "-- rewinds::stretch
        select id, state from settled.intents where id > $1 order by id limit $2",
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let unreadable =
                || StoreError::Inconsistent { table: "intents", column: "state", row: row.id, why: row.state.clone() };
            Ok((row.id, State::parse(&row.state).ok_or_else(unreadable)?))
        })
        .collect()
}

/// Remembers how far the walk has come, and whether that was all.
///
/// # Errors
/// When Postgres does.
pub async fn walked(
    conn: &mut PgConnection,
    number: i32,
    to: Uuid,
    over: bool,
    at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- rewinds::walked
        update settled.rewinds
           set walked_to = $2, walked_at = case when $3 then coalesce($4, clock_timestamp()) end
         where number = $1",
        number,
        to,
        over,
        at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Marks what has ended without effect: its "not sent" is no longer certain. Returns how many were marked.
///
/// # Errors
/// When Postgres does.
pub async fn mark(conn: &mut PgConnection, ids: &[Uuid], number: i32, actor: &str) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- rewinds::mark
        with marked as (
            update settled.intents set marks = array_append(marks, 'history_lost'), version = version + 1
             where id = any($1) and state in ('failed', 'cancelled') and not 'history_lost' = any (marks)
            returning id, state, attempt),
        told as (
            insert into settled.journal (intent_id, kind, attempt, actor, data)
            select id, 'move', attempt, $3,
                   jsonb_build_object('from', state, 'to', state, 'detail', 'the database lost history', 'rewind', $2::integer)
              from marked)
        select count(*) as "count!" from marked"#,
        ids,
        number,
        actor,
    )
    .fetch_one(conn)
    .await?)
}

/// Appends to an intent's evidence that attempts of it may have been lost. The caller holds its row.
///
/// # Errors
/// When Postgres does.
pub async fn take(
    conn: &mut PgConnection,
    intent_id: Uuid,
    lost: &LostAttempts,
    actor: &str,
    at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- rewinds::take
        with told as (
            insert into settled.journal (intent_id, at, kind, actor, data) values ($1, $2, 'history', $3, $4))
        update settled.intents set rewind = $5 where id = $1",
        intent_id,
        at,
        actor,
        json!(lost),
        lost.rewind,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Generation that a destination is sent to now.
///
/// # Errors
/// When Postgres does.
pub async fn generation_of(conn: &mut PgConnection, destination: &str) -> Result<String, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- rewinds::generation_of\nselect generation from settled.destinations where name = $1",
        destination
    )
    .fetch_one(conn)
    .await?)
}

/// Whether a destination has meant more than one downstream since then: nobody knows which of them a lost attempt used.
///
/// # Errors
/// When Postgres does.
pub async fn meant_another(
    conn: &mut PgConnection,
    destination: &str,
    since: DateTime<Utc>,
) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- rewinds::meant_another
        select coalesce(count(*) > 1 and max(published_at) >= $2, false) as "another!"
          from settled.generations where destination = $1"#,
        destination,
        since,
    )
    .fetch_one(conn)
    .await?)
}

/// Intents that would be claimed although a rewind that concerns them is not among their evidence: they were asked for in a
/// transaction that was open when it was noticed, or a person sends them again. With the number of that rewind.
///
/// # Errors
/// When Postgres does.
pub async fn stragglers(conn: &mut PgConnection, below: Uuid, limit: i64) -> Result<Vec<(Uuid, i32)>, StoreError> {
    let rows = sqlx::query!(
        r#"-- rewinds::stragglers
        select x.intent_id, x.number as "number!" from (
            select q.intent_id,
                   (select max(w.number) from settled.rewinds w
                     where w.number > i.rewind and w.ask_first_until > i.created_at) as number
              from settled.queue q join settled.intents i on i.id = q.intent_id
             where q.intent_id < $1 and q.kind = 'send' and q.leased_until is null) x
         where x.number is not null limit $2"#,
        below,
        limit,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.intent_id, row.number)).collect())
}

/// One rewind, ended or not; and the latest moment until which any of them asks first.
///
/// # Errors
/// When Postgres does.
pub async fn newest(conn: &mut PgConnection) -> Result<Option<(Rewind, DateTime<Utc>)>, StoreError> {
    let latest = sqlx::query_scalar!("-- rewinds::latest\nselect max(ask_first_until) from settled.rewinds")
        .fetch_one(&mut *conn)
        .await?;
    let row = sqlx::query_as!(
        Rewind,
        "-- rewinds::newest
        select number, noticed_at, why, known_until, closure_at, quiet_until, ask_first_until, needs_person, walked_to, walked_at,
               lifted_at, lifted_by, lifted_because
          from settled.rewinds order by number desc limit 1",
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.zip(latest))
}

/// Intents that a rewind has put in doubt and nobody has answered yet, counted up to `cap`.
///
/// # Errors
/// When Postgres does.
pub async fn in_doubt(conn: &mut PgConnection, number: i32, cap: i64) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- rewinds::in_doubt
        select count(*) as "count!" from (
            select 1 as one from settled.queue q
             where q.kind in ('ask', 'wait')
               and (select i.rewind >= $1 and i.state = 'unknown' from settled.intents i where i.id = q.intent_id)
             limit $2) x"#,
        number,
        cap,
    )
    .fetch_one(conn)
    .await?)
}

/// Ends a quarantine whose times are over and whose questions are answered, and closes the escalation with the last one.
///
/// # Errors
/// When Postgres does.
pub async fn end(
    conn: &mut PgConnection,
    number: i32,
    by: &str,
    at: Option<DateTime<Utc>>,
) -> Result<bool, StoreError> {
    let ended = sqlx::query!(
        "-- rewinds::end
        with t as (select coalesce($2, clock_timestamp()) as now),
        ended as (
            update settled.rewinds w set ended_at = t.now from t
             where w.number = $1 and w.ended_at is null and w.walked_at is not null
               and w.quiet_until <= t.now and w.ask_first_until <= t.now
               and (w.lifted_at is not null or not w.needs_person)
               and not exists (select from settled.queue q
                                where q.kind in ('ask', 'wait')
                                  and (select i.rewind >= $1 and i.state = 'unknown' from settled.intents i where i.id = q.intent_id))
            returning w.number)
        insert into settled.journal (at, kind, actor, data)
        select t.now, 'administration', $3, jsonb_build_object('act', 'quarantine_ended', 'rewind', ended.number) from ended, t",
        number,
        at,
        by,
    )
    .execute(&mut *conn)
    .await?;
    if ended.rows_affected() == 0 {
        return Ok(false);
    }
    sqlx::query!(
        "-- rewinds::answered
        update settled.escalations
           set closed_at = coalesce($2, clock_timestamp()), closed_by = $3, resolution = 'the quarantine is over',
               version = version + 1
         where subject = 'instance' and reason = $1 and closed_at is null
           and not exists (select from settled.rewinds where ended_at is null)",
        Reason::LedgerRewound.as_str(),
        at,
        by,
    )
    .execute(conn)
    .await?;
    Ok(true)
}

/// A person lifts every quarantine in force: what is asked for from now on is not asked about first, and a copy may send.
/// Questions that are open stay open, and nothing is claimed earlier than otherwise. Returns how many were lifted.
///
/// # Errors
/// When Postgres does.
pub async fn lift(
    conn: &mut PgConnection,
    by: &str,
    reason: &str,
    at: Option<DateTime<Utc>>,
) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- rewinds::lift
        with lifted as (
            update settled.rewinds
               set lifted_at = coalesce($3, clock_timestamp()), lifted_by = $1, lifted_because = $2,
                   ask_first_until = least(ask_first_until, coalesce($3, clock_timestamp()))
             where ended_at is null and lifted_at is null
            returning number),
        told as (
            insert into settled.journal (at, kind, actor, data)
            select coalesce($3, clock_timestamp()), 'administration', $1,
                   jsonb_build_object('act', 'lift_quarantine', 'rewind', number, 'reason', $2::text) from lifted)
        select count(*) as "count!" from lifted"#,
        by,
        reason,
        at,
    )
    .fetch_one(conn)
    .await?)
}
