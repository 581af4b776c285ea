//! What `settled verify` reads, claims and tries. Its tries to change history run in a transaction that its caller rolls back.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::PgQueryResult};
use uuid::Uuid;

use super::{
    error::StoreError,
    queue::{Picked, PickedRow},
};

/// How many rows `requests` has of a run.
///
/// # Errors
/// When Postgres does.
pub async fn requests_of_run(conn: &mut PgConnection, tenant: &str, run_id: &str) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- verify::requests_of_run
        select count(*) as "count!" from settled.requests where tenant = $1 and run_id = $2"#,
        tenant,
        run_id,
    )
    .fetch_one(conn)
    .await?)
}

/// How many intents a tenant has of a reference, in lower case.
///
/// # Errors
/// When Postgres does.
pub async fn intents_named(conn: &mut PgConnection, tenant: &str, reference: &str) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- verify::intents_named
        select count(*) as "count!" from settled.intents where tenant = $1 and reference = $2"#,
        tenant,
        reference,
    )
    .fetch_one(conn)
    .await?)
}

/// `synchronous_commit` as the running transaction has it.
///
/// # Errors
/// When Postgres does.
pub async fn synchronous_commit(conn: &mut PgConnection) -> Result<String, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- verify::synchronous_commit
        select current_setting('synchronous_commit') as "setting!""#
    )
    .fetch_one(conn)
    .await?)
}

/// A change that the schema must refuse with ST450.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tamper {
    /// Another principal in a request.
    UpdateRequest,
    /// A request that never was.
    DeleteRequest,
    /// Another outcome of an attempt that has ended.
    UpdateAttempt,
    /// An attempt that never was.
    DeleteAttempt,
    /// Another actor in the journal.
    UpdateJournal,
    /// An act that never was.
    DeleteJournal,
    /// Other content under the same intent.
    UpdatePayload,
    /// Another reference of the same intent.
    RenameIntent,
    /// From cancelled to in flight.
    IllegalMove,
}

impl Tamper {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::UpdateRequest,
        Self::DeleteRequest,
        Self::UpdateAttempt,
        Self::DeleteAttempt,
        Self::UpdateJournal,
        Self::DeleteJournal,
        Self::UpdatePayload,
        Self::RenameIntent,
        Self::IllegalMove,
    ];

    /// In words that follow "refused: ".
    pub fn words(self) -> &'static str {
        match self {
            Self::UpdateRequest => "update of a request",
            Self::DeleteRequest => "delete of a request",
            Self::UpdateAttempt => "update of an attempt that has ended",
            Self::DeleteAttempt => "delete of an attempt that has ended",
            Self::UpdateJournal => "update of the journal",
            Self::DeleteJournal => "delete from the journal",
            Self::UpdatePayload => "update of a payload",
            Self::RenameIntent => "another reference for an intent",
            Self::IllegalMove => "a move from cancelled to in flight",
        }
    }

    /// Tries it on an intent that is cancelled and has an attempt that ended; returns the rows that it changed.
    ///
    /// # Errors
    /// Of Postgres, as it raises them.
    pub async fn attempt(self, conn: &mut PgConnection, intent_id: Uuid) -> Result<u64, sqlx::Error> {
        let done = match self {
            Self::UpdateRequest => {
                sqlx::query!(
                    "-- verify::tamper\nupdate settled.requests set principal = 'nobody' where intent_id = $1",
                    intent_id
                )
                .execute(conn)
                .await?
            }
            Self::DeleteRequest => {
                sqlx::query!("-- verify::tamper\ndelete from settled.requests where intent_id = $1", intent_id)
                    .execute(conn)
                    .await?
            }
            Self::UpdateAttempt => {
                sqlx::query!(
                    "-- verify::tamper\nupdate settled.attempts set generation = 'other' where intent_id = $1",
                    intent_id
                )
                .execute(conn)
                .await?
            }
            Self::DeleteAttempt => {
                sqlx::query!("-- verify::tamper\ndelete from settled.attempts where intent_id = $1", intent_id)
                    .execute(conn)
                    .await?
            }
            Self::UpdateJournal => {
                sqlx::query!(
                    "-- verify::tamper\nupdate settled.journal set actor = 'nobody' where intent_id = $1",
                    intent_id
                )
                .execute(conn)
                .await?
            }
            Self::DeleteJournal => {
                sqlx::query!("-- verify::tamper\ndelete from settled.journal where intent_id = $1", intent_id)
                    .execute(conn)
                    .await?
            }
            Self::UpdatePayload => {
                sqlx::query!(
                    "-- verify::tamper\nupdate settled.payloads set body = '{}' where intent_id = $1",
                    intent_id
                )
                .execute(conn)
                .await?
            }
            Self::RenameIntent => {
                sqlx::query!(
                    "-- verify::tamper\nupdate settled.intents set reference = reference || '.x' where id = $1",
                    intent_id
                )
                .execute(conn)
                .await?
            }
            Self::IllegalMove => illegal_move(conn, intent_id).await?,
        };
        Ok(done.rows_affected())
    }
}

/// The row that a legal move to in flight would write, from cancelled.
async fn illegal_move(conn: &mut PgConnection, intent_id: Uuid) -> Result<PgQueryResult, sqlx::Error> {
    sqlx::query!(
        "-- verify::illegal_move
        update settled.intents
           set state = 'in_flight', settled_at = null, holds_effect = true, attempt = 1, key = 'x', kid = 'x'
         where id = $1 and state = 'cancelled'",
        intent_id
    )
    .execute(conn)
    .await
}

/// Gives an intent an attempt that has ended without effect, for a try to change it. Only in a transaction that is rolled back.
///
/// # Errors
/// When Postgres does.
pub async fn pretend_attempt(conn: &mut PgConnection, intent_id: Uuid, worker: Uuid) -> Result<(), StoreError> {
    sqlx::query!(
        r#"-- verify::pretend_attempt
        insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until, closure_at,
               closed_at, outcome, report)
        select $1, 1, 'send', gen_random_uuid(), $2, 'verify', t.now, t.now, t.now, t.now, 'not_sent',
               '{"outcome": {"outcome": "not_sent", "proof": "not_started"},
                 "report": {"stage": "prepared", "bytes_handed": 0, "bytes_needed": 0, "millis": 0}}'::json
          from (select clock_timestamp() as now) t"#,
        intent_id,
        worker,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What a producer's role may beside asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    /// The role.
    pub role: String,
    /// What it may, in words.
    pub may: String,
}

/// How many producers' roles there are, and everything they may on the ledger beside what a producer needs: tables, other
/// functions, the owner's rights.
///
/// # Errors
/// When Postgres does.
pub async fn excess_of_producers(conn: &mut PgConnection) -> Result<(i64, Vec<Excess>), StoreError> {
    let roles = sqlx::query_scalar!(
        r#"-- verify::excess_of_producers (count)
        select count(distinct p.role) as "count!" from settled.producers p join pg_roles r on r.rolname = p.role"#
    )
    .fetch_one(&mut *conn)
    .await?;
    let excess = sqlx::query_as!(
        Excess,
        r#"-- verify::excess_of_producers
        with n as (select oid, nspowner from pg_namespace where nspname = 'settled'),
        roles as (select r.oid, r.rolname, pg_has_role(r.oid, n.nspowner, 'member') as owns
                    from (select distinct role from settled.producers) p join pg_roles r on r.rolname = p.role, n)
        select rolname::text as "role!", 'is the owner of the ledger or a member of it' as "may!" from roles where owns
        union all
        select r.rolname::text, string_agg(distinct lower(g.privilege), ', ') || ' on settled.' || c.relname
          from roles r, n, pg_class c, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) g (privilege)
         where not r.owns and c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'm')
           and has_table_privilege(r.oid, c.oid, g.privilege) and not (c.relname = 'receipts' and g.privilege = 'SELECT')
         group by r.rolname, c.relname
        union all
        select r.rolname::text, 'execute settled.' || f.proname
          from roles r, n, pg_proc f
         where not r.owns and f.pronamespace = n.oid and f.proname not in ('enqueue', 'enqueue_many', 'cancel')
           and has_function_privilege(r.oid, f.oid, 'execute')
         order by 1, 2"#
    )
    .fetch_all(conn)
    .await?;
    Ok((roles, excess))
}

/// Daemons other than this worker that were heard of within so many seconds.
///
/// # Errors
/// When Postgres does.
pub async fn other_daemons(conn: &mut PgConnection, worker: Uuid, silent_for: f64) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- verify::other_daemons
        select count(*) as "count!" from settled.workers
         where id <> $1 and stopped_at is null and heartbeat_at > clock_timestamp() - make_interval(secs => $2)"#,
        worker,
        silent_for,
    )
    .fetch_one(conn)
    .await?)
}

/// How a canary stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Its state.
    pub state: String,
    /// The key that was pinned, once it was claimed.
    pub key: Option<String>,
    /// Its recipient, normal form.
    pub recipient: String,
    /// The downstream's name for it.
    pub provider_id: Option<String>,
    /// What must be known about it for ever.
    pub marks: Vec<String>,
    /// Database time.
    pub now: DateTime<Utc>,
}

/// Reads [`Standing`].
///
/// # Errors
/// When Postgres does, or there is no such intent.
pub async fn standing(conn: &mut PgConnection, intent_id: Uuid) -> Result<Standing, StoreError> {
    Ok(sqlx::query_as!(
        Standing,
        r#"-- verify::standing
        select state, key, recipient, provider_id, marks, clock_timestamp() as "now!" from settled.intents where id = $1"#,
        intent_id,
    )
    .fetch_one(conn)
    .await?)
}

/// Locks one intent that waits to be sent, whenever it is due. `None` where somebody else has it or it does not wait.
///
/// # Errors
/// When Postgres does.
pub async fn pick(conn: &mut PgConnection, intent_id: Uuid) -> Result<Option<Picked>, StoreError> {
    let row = sqlx::query_as!(
        PickedRow,
        r#"-- verify::pick
        with one as materialized (
            select i.* from settled.intents i join settled.queue q on q.intent_id = i.id
             where i.id = $1 and i.state = 'pending' and q.kind = 'send' and q.leased_until is null
               and not exists (select from settled.rewinds w where w.number > i.rewind and w.ask_first_until > i.created_at)
               for no key update of i skip locked)
        select i.id as "id!", i.tenant as "tenant!", i.effect_scope as "effect_scope!", i.recipient as "recipient!",
               i.occurrence as "occurrence!", i.attempt as "attempt!", i.rewind > 0 as "rewound!", i.key, i.kid, i.created_at as "created_at!",
               i.revision as "revision!", r.run_id, r.step, r.slot, r.reference, p.body, clock_timestamp() as "now!"
          from one i
          join settled.requests r on r.intent_id = i.id and r.verdict = 'accepted'
          join settled.payloads p on p.intent_id = i.id"#,
        intent_id,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(Picked::from))
}

/// Leases the question about one intent to a worker, whenever it is due, unless another asks it now.
///
/// # Errors
/// When Postgres does.
pub async fn claim_question(
    conn: &mut PgConnection,
    intent_id: Uuid,
    lease_seconds: f64,
    worker: Uuid,
) -> Result<bool, StoreError> {
    let leased = sqlx::query!(
        "-- verify::claim_question
        update settled.queue q
           set leased_until = clock_timestamp() + make_interval(secs => $2), token = $3
         where q.intent_id = (select o.intent_id from settled.queue o
                               where o.intent_id = $1 and o.kind = 'ask'
                                 and (o.leased_until is null or o.leased_until < statement_timestamp())
                                 for update skip locked)",
        intent_id,
        lease_seconds,
        worker,
    )
    .execute(conn)
    .await?;
    Ok(leased.rows_affected() == 1)
}

/// Intents of a tenant that something may still happen to, with their states.
///
/// # Errors
/// When Postgres does.
pub async fn unsettled(conn: &mut PgConnection, tenant: &str) -> Result<Vec<(Uuid, String)>, StoreError> {
    let rows = sqlx::query!(
        r#"-- verify::unsettled
        select i.id, i.state from settled.queue q join settled.intents i on i.id = q.intent_id where q.tenant = $1 order by i.id"#,
        tenant,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.state)).collect())
}

/// Closes what people would be asked about settled canaries: whoever ran `verify` was told. Returns how many.
///
/// # Errors
/// When Postgres does.
pub async fn close_escalations(conn: &mut PgConnection, tenant: &str, actor: &str) -> Result<u64, StoreError> {
    Ok(sqlx::query!(
        "-- verify::close_escalations
        update settled.escalations e
           set closed_at = clock_timestamp(), closed_by = $2, resolution = 'a canary; verify has told of it', version = e.version + 1
          from settled.intents i
         where i.id = e.intent_id and i.tenant = $1 and e.tenant = $1 and e.subject = 'intent' and e.closed_at is null
           and i.state in ('sent', 'failed', 'cancelled')",
        tenant,
        actor,
    )
    .execute(conn)
    .await?
    .rows_affected())
}
