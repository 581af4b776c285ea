//! `settled.queue`: what is due. A row exists while there is something to do.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;
use crate::domain::intent::Identity;

pub mod asking;

/// What a queue row waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// To be sent.
    Send,
    /// To be asked about.
    Ask,
    /// For a person.
    Person,
}

impl Waits {
    /// The word in the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Ask => "ask",
            Self::Person => "wait",
        }
    }
}

/// An intent picked for a send: locked, not yet claimed.
#[derive(Debug, Clone)]
pub struct Picked {
    /// The intent.
    pub id: Uuid,
    /// Who asked first; makes the key.
    pub identity: Identity,
    /// Effect scope; makes the key.
    pub effect_scope: String,
    /// Recipient.
    pub recipient: String,
    /// Reference as the caller spelled it.
    pub reference: String,
    /// Occurrence.
    pub occurrence: i32,
    /// Attempts so far.
    pub attempt: i32,
    /// A rewind may have taken attempts of it: it needs a proof about them.
    pub rewound: bool,
    /// Key, where an earlier attempt or admission pinned it.
    pub key: Option<String>,
    /// Its secret.
    pub kid: Option<String>,
    /// Admission.
    pub created_at: DateTime<Utc>,
    /// Payload as given.
    pub payload: String,
    /// Database time.
    pub now: DateTime<Utc>,
}

/// The columns that every statement that picks gives.
pub(super) struct PickedRow {
    pub(super) id: Uuid,
    pub(super) tenant: String,
    pub(super) effect_scope: String,
    pub(super) recipient: String,
    pub(super) occurrence: i32,
    pub(super) attempt: i32,
    pub(super) rewound: bool,
    pub(super) key: Option<String>,
    pub(super) kid: Option<String>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) revision: i32,
    pub(super) run_id: String,
    pub(super) step: i64,
    pub(super) slot: String,
    pub(super) reference: String,
    pub(super) body: String,
    pub(super) now: DateTime<Utc>,
}

impl From<PickedRow> for Picked {
    fn from(row: PickedRow) -> Self {
        Self {
            id: row.id,
            identity: Identity {
                tenant: row.tenant,
                run_id: row.run_id,
                step: row.step,
                slot: row.slot,
                revision: row.revision,
            },
            effect_scope: row.effect_scope,
            recipient: row.recipient,
            reference: row.reference,
            occurrence: row.occurrence,
            attempt: row.attempt,
            rewound: row.rewound,
            key: row.key,
            kid: row.kid,
            created_at: row.created_at,
            payload: row.body,
            now: row.now,
        }
    }
}

/// A destination with something due, and what stands in the way.
#[derive(Debug, Clone)]
pub struct Due {
    /// Its name.
    pub destination: String,
    /// A learned pace is in force.
    pub learned: bool,
    /// Open unknowns, counted up to the cap.
    pub open: i64,
}

/// Which of these destinations have something due that may be sent now: not parked, not paused, not waiting because the
/// destination asked for it. Beside each its open unknowns, counted up to its cap (see [`open_unknowns`]).
///
/// The first row of the index tells, whatever else waits: `exists` was seen to read the whole queue for an idle destination.
/// Here and below `statement_timestamp()`, because a comparison with the volatile `clock_timestamp()` cannot bound an index
/// scan: rows that are due tomorrow would be read at every poll. One statement, because this is asked before every claim.
///
/// # Errors
/// When Postgres does.
pub async fn destinations_due(
    conn: &mut PgConnection,
    destinations: &[String],
    caps: &[i64],
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Due>, StoreError> {
    Ok(sqlx::query_as!(
        Due,
        r#"-- queue::destinations_due
        select d.name as "destination!", coalesce(p.learned, false) as "learned!", u.open as "open!"
          from unnest($1::text[], $2::bigint[]) d (name, cap)
          left join lateral (
            select p.learned is not null as learned, p.not_before from settled.paces p where p.destination = d.name offset 0) p on true
         cross join lateral (
            select case when (select q.due_at from settled.queue q
                               where q.destination = d.name and q.kind = 'send' and q.leased_until is null
                               order by q.due_at limit 1) <= coalesce($3, statement_timestamp())
                         -- A CASE keeps the order: what has nothing due is not counted.
                         then (select count(*) from (
                                (select q.intent_id from settled.queue q
                                  where q.destination = d.name and q.kind = 'ask'
                                    and (select i.state from settled.intents i where i.id = q.intent_id) = 'unknown'
                                  order by q.due_at limit d.cap)
                                union all
                                (select q.intent_id from settled.queue q
                                  where q.destination = d.name and q.kind = 'wait'
                                    and (select i.state from settled.intents i where i.id = q.intent_id) = 'unknown'
                                  order by q.due_at limit d.cap)) x)
                   end as open offset 0) u
         where u.open is not null
           and coalesce(p.not_before <= coalesce($3, statement_timestamp()), true)
           and (select s.parked_at from settled.destinations s where s.name = d.name) is null
           and not exists (select from settled.pauses s
                            where s.scope = 'all' or (s.scope = 'destination' and s.name = d.name))"#,
        destinations,
        caps,
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// Locks at most `limit` due intents of a destination, skipping what others hold. First half of a claim.
///
/// A materialized CTE, because a sub-select with a limit under `in` was seen to lock more rows than asked for; and one look
/// by key for each row that it gives, because a join was seen to read all requests there are. Only the intent is locked: whoever
/// moves one locks its row first, and a second claimer that waited sees that it is no longer pending. Paused tenants are skipped
/// here; a paused destination is not asked for at all.
///
/// # Errors
/// When Postgres does.
pub async fn pick(
    conn: &mut PgConnection,
    destination: &str,
    limit: i64,
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Picked>, StoreError> {
    let rows = sqlx::query_as!(
        PickedRow,
        r#"-- queue::pick
        with due as materialized (
            select i.id, i.tenant, i.effect_scope, i.recipient, i.occurrence, i.attempt, i.key, i.kid, i.created_at, i.revision, i.rewind
              from settled.queue q join settled.intents i on i.id = q.intent_id
             where q.destination = $1 and q.kind = 'send' and q.leased_until is null
               and q.due_at <= coalesce($3, statement_timestamp())
               and (q.deadline is null or q.deadline > coalesce($3, statement_timestamp()))
               and i.state = 'pending'
               -- History was lost since it came in, and that is not among its evidence yet.
               and not exists (select from settled.rewinds w where w.number > i.rewind and w.ask_first_until > i.created_at)
               and not exists (select from settled.pauses p where p.scope = 'all'
                                or (p.scope = 'tenant' and p.name = q.tenant)
                                or (p.scope = 'destination' and p.name = q.destination))
             order by q.due_at limit $2
               for no key update of i skip locked)
        select i.id as "id!", i.tenant as "tenant!", i.effect_scope as "effect_scope!", i.recipient as "recipient!",
               i.occurrence as "occurrence!", i.attempt as "attempt!", i.rewind > 0 as "rewound!", i.key, i.kid, i.created_at as "created_at!",
               i.revision as "revision!", r.run_id, r.step, r.slot, r.reference, p.body, coalesce($3, clock_timestamp()) as "now!"
          from due i
         cross join lateral (select r.run_id, r.step, r.slot, r.reference from settled.requests r
                              where r.intent_id = i.id and r.verdict = 'accepted' offset 0) r
         cross join lateral (select p.body from settled.payloads p where p.intent_id = i.id offset 0) p"#,
        destination,
        limit,
        at,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Picked::from).collect())
}

/// The columns of a batch that opens attempts; equal lengths.
#[derive(Debug, Default)]
pub struct Batch {
    /// Intents, picked in this transaction.
    pub ids: Vec<Uuid>,
    /// Fences.
    pub tokens: Vec<Uuid>,
    /// Keys to pin where none is pinned yet.
    pub keys: Vec<String>,
    /// Their secrets.
    pub kids: Vec<String>,
    /// Digests of the renderings; empty where nothing was rendered.
    pub digests: Vec<Vec<u8>>,
}

/// Opens one attempt for each picked intent: state, lease and attempt in one statement. Second half of a claim.
///
/// The attempt's row tells who claimed when, by which fence and until when; the journal does not say it again.
///
/// # Errors
/// When Postgres does.
pub async fn open_attempts(
    conn: &mut PgConnection,
    batch: &Batch,
    worker: Uuid,
    generation: &str,
    now: DateTime<Utc>,
    lease_until: DateTime<Utc>,
    replay_until: Option<DateTime<Utc>>,
) -> Result<u64, StoreError> {
    let opened = sqlx::query_scalar!(
        r#"-- queue::open_attempts
        with c as (select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $9::bytea[])
                     as c(id, token, key, kid, digest)),
        i as (
            update settled.intents i
               set state = 'in_flight', attempt = i.attempt + 1, key = coalesce(i.key, c.key), kid = coalesce(i.kid, c.kid)
              from c where i.id = c.id and i.state = 'pending'
            returning i.id, i.attempt, c.token, c.digest),
        q as (
            update settled.queue q set leased_until = $8, token = i.token
              from i where q.intent_id = i.id
            returning q.intent_id),
        a as (
            insert into settled.attempts
                (intent_id, number, kind, token, worker, generation, claimed_at, lease_until, digest, replay_until)
            select i.id, i.attempt, 'send', i.token, $5, $6, $7, $8, nullif(i.digest, ''), $10 from i)
        select count(*) as "count!" from i"#,
        &batch.ids,
        &batch.tokens,
        &batch.keys,
        &batch.kids,
        worker,
        generation,
        now,
        lease_until,
        &batch.digests,
        replay_until,
    )
    .fetch_one(conn)
    .await?;
    Ok(u64::try_from(opened).unwrap_or(0))
}

/// Results of first attempts that the downstream took: the one case whose fold needs no history.
#[derive(Debug, Default)]
pub struct SentBatch {
    /// Intents.
    pub ids: Vec<Uuid>,
    /// Fences.
    pub tokens: Vec<Uuid>,
    /// The downstream's names, '' for none.
    pub provider_ids: Vec<String>,
    /// Reports, as JSON.
    pub reports: Vec<String>,
}

/// Settles first attempts as sent, in one statement; open escalations of the `answered` reasons are closed. Returns the ids
/// that it settled; the others have moved meanwhile and take the careful path.
///
/// The closed attempt tells when, by whom and with what it ended; the journal does not say it again (see
/// `journal::newest`). The rendering's digest stands there since the claim.
///
/// # Errors
/// When Postgres does; the caller then splits the batch.
pub async fn settle_sent(
    conn: &mut PgConnection,
    batch: &SentBatch,
    worker: Uuid,
    answered: &[String],
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Uuid>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- queue::settle_sent
        with r as (
            select r.*, coalesce($6, clock_timestamp()) as now
              from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) as r(id, token, provider_id, report)),
        i as (
            update settled.intents i
               set state = 'sent', sent_at = r.now, settled_at = r.now, provider_id = nullif(r.provider_id, ''),
                   evidence = i.evidence + 1, version = i.version + 1
              from r
             where i.id = r.id and i.state = 'in_flight' and i.attempt = 1 and i.evidence = 0
               -- One row by its key, whatever the planner believes of a table that was empty when it planned.
               and r.token = (select a.token from settled.attempts a where a.intent_id = i.id and a.number = 1)
            returning i.id, r.token, r.report, r.now),
        a as (
            update settled.attempts a
               set closed_at = i.now, closure_at = i.now, outcome = 'sent', report = i.report::json
              from i where a.intent_id = i.id and a.number = 1 and a.token = i.token),
        q as (delete from settled.queue q using i where q.intent_id = i.id),
        e as (
            update settled.escalations e
               set closed_at = i.now, closed_by = 'dispatcher@' || $5::uuid, resolution = 'the intent is sent', version = e.version + 1
              from i cross join lateral (
                   -- One look by key for each, however many are open.
                   select o.id from settled.escalations o
                    where o.intent_id = i.id and o.subject = 'intent' and o.closed_at is null and o.reason = any($7) offset 0) o
             where e.id = o.id)
        select id as "id!" from i"#,
        &batch.ids,
        &batch.tokens,
        &batch.provider_ids,
        &batch.reports,
        worker,
        at,
        answered,
    )
    .fetch_all(conn)
    .await?)
}

/// Puts an intent's row where its state belongs. Clears any lease.
///
/// # Errors
/// When Postgres does.
pub async fn put(
    conn: &mut PgConnection,
    intent_id: Uuid,
    waits: Waits,
    due_at: DateTime<Utc>,
    deadline: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- queue::put
        insert into settled.queue (intent_id, destination, tenant, kind, due_at, deadline)
        select id, destination, tenant, $2, $3, $4 from settled.intents where id = $1
        on conflict (intent_id) do update
           set kind = excluded.kind, due_at = excluded.due_at, deadline = excluded.deadline,
               urgent = false, leased_until = null, token = null",
        intent_id,
        waits.as_str(),
        due_at,
        deadline,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A row that is due and cannot be claimed must not stand before the others.
///
/// # Errors
/// When Postgres does.
pub async fn put_off(conn: &mut PgConnection, intent_id: Uuid, due_at: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query!(
        "-- queue::put_off\nupdate settled.queue set due_at = $2 where intent_id = $1 and leased_until is null",
        intent_id,
        due_at,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Nothing more to do for it.
///
/// # Errors
/// When Postgres does.
pub async fn remove(conn: &mut PgConnection, intent_id: Uuid) -> Result<(), StoreError> {
    sqlx::query!("-- queue::remove\ndelete from settled.queue where intent_id = $1", intent_id).execute(conn).await?;
    Ok(())
}

/// Unleased intents whose deadline has gone by, at most `limit`.
///
/// # Errors
/// When Postgres does.
pub async fn past_deadline(
    conn: &mut PgConnection,
    at: Option<DateTime<Utc>>,
    limit: i64,
) -> Result<Vec<Uuid>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- queue::past_deadline
        select intent_id from settled.queue
         where deadline is not null and deadline <= coalesce($1, statement_timestamp()) and leased_until is null
         order by deadline limit $2",
        at,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// The deadline of an intent in doubt has passed: it ends no doubt, so it is not looked for again.
///
/// # Errors
/// When Postgres does.
pub async fn forget_deadline(conn: &mut PgConnection, intent_id: Uuid) -> Result<(), StoreError> {
    sqlx::query!("-- queue::forget_deadline\nupdate settled.queue set deadline = null where intent_id = $1", intent_id)
        .execute(conn)
        .await?;
    Ok(())
}

/// How many intents of a destination are in doubt, counted up to `cap`: those that are asked about and those that wait for
/// a person, but not what was closed as perhaps sent. Scalars and orders, so that the index is read and never a table.
///
/// # Errors
/// When Postgres does.
pub async fn open_unknowns(conn: &mut PgConnection, destination: &str, cap: i64) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- queue::open_unknowns
        select count(*) as "count!" from (
            (select q.intent_id from settled.queue q
              where q.destination = $1 and q.kind = 'ask'
                and (select i.state from settled.intents i where i.id = q.intent_id) = 'unknown'
              order by q.due_at limit $2)
            union all
            (select q.intent_id from settled.queue q
              where q.destination = $1 and q.kind = 'wait'
                and (select i.state from settled.intents i where i.id = q.intent_id) = 'unknown'
              order by q.due_at limit $2)) x"#,
        destination,
        cap,
    )
    .fetch_one(conn)
    .await?)
}

/// Unsettled intents without a queue row, among those admitted in a window: must be none.
///
/// # Errors
/// When Postgres does.
pub async fn orphans(
    conn: &mut PgConnection,
    after: Uuid,
    limit: i64,
) -> Result<(Vec<Uuid>, Option<Uuid>), StoreError> {
    let rows = sqlx::query!(
        r#"-- queue::orphans
        select i.id, (i.state in ('held', 'pending', 'in_flight', 'unknown')
                      and (select q.intent_id from settled.queue q where q.intent_id = i.id) is null) as "orphan!"
          from settled.intents i where i.id > $1 order by i.id limit $2"#,
        after,
        limit,
    )
    .fetch_all(conn)
    .await?;
    let last = rows.last().map(|row| row.id);
    Ok((rows.into_iter().filter(|row| row.orphan).map(|row| row.id).collect(), last))
}
