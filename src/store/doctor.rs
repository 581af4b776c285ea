//! What `settled doctor` reads about the server and the ledger. Reads only.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::error::StoreError;

/// The server as a whole.
#[derive(Debug, Clone)]
pub struct Server {
    /// `server_version`.
    pub version: String,
    /// Its clock.
    pub now: DateTime<Utc>,
    /// It only reads.
    pub read_only: bool,
    /// Who we are there.
    pub role: String,
    /// The role owns the ledger.
    pub owner: bool,
}

/// Reads [`Server`].
///
/// # Errors
/// When Postgres does.
pub async fn server(conn: &mut PgConnection) -> Result<Server, StoreError> {
    Ok(sqlx::query_as!(
        Server,
        r#"-- doctor::server
        select current_setting('server_version') as "version!", clock_timestamp() as "now!",
               current_setting('transaction_read_only') = 'on' as "read_only!", session_user::text as "role!",
               pg_has_role(session_user, (select n.nspowner from pg_namespace n where n.nspname = 'settled'), 'member') as "owner!""#
    )
    .fetch_one(conn)
    .await?)
}

/// A transaction that has been open for long.
#[derive(Debug, Clone)]
pub struct OpenTransaction {
    /// Its session.
    pub pid: i32,
    /// Its program.
    pub program: String,
    /// For how long, seconds.
    pub seconds: f64,
    /// It keeps dead rows from being removed.
    pub pins_the_horizon: bool,
}

/// The oldest transactions of this database that are older than so many seconds, at most ten.
///
/// # Errors
/// When Postgres does.
pub async fn open_transactions(conn: &mut PgConnection, older_than: f64) -> Result<Vec<OpenTransaction>, StoreError> {
    Ok(sqlx::query_as!(
        OpenTransaction,
        r#"-- doctor::open_transactions
        select pid as "pid!", coalesce(nullif(application_name, ''), 'unnamed') as "program!",
               extract(epoch from clock_timestamp() - xact_start)::double precision as "seconds!",
               backend_xmin is not null as "pins_the_horizon!"
          from pg_stat_activity
         where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
           and xact_start < clock_timestamp() - make_interval(secs => $1)
         order by xact_start limit 10"#,
        older_than,
    )
    .fetch_all(conn)
    .await?)
}

/// A session that waits for another one on a table of the ledger.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Who waits.
    pub pid: i32,
    /// For whom.
    pub blockers: Vec<i32>,
    /// For how long, seconds.
    pub seconds: f64,
}

/// Sessions that wait for locks in this database, longest first, at most ten.
///
/// # Errors
/// When Postgres does.
pub async fn waiting(conn: &mut PgConnection) -> Result<Vec<Waiting>, StoreError> {
    Ok(sqlx::query_as!(
        Waiting,
        r#"-- doctor::waiting
        select pid as "pid!", pg_blocking_pids(pid) as "blockers!",
               extract(epoch from clock_timestamp() - state_change)::double precision as "seconds!"
          from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'
         order by state_change limit 10"#
    )
    .fetch_all(conn)
    .await?)
}

/// How one table of the ledger stands.
#[derive(Debug, Clone)]
pub struct Bloat {
    /// The table.
    pub name: String,
    /// Live rows, as estimated.
    pub live: i64,
    /// Dead ones.
    pub dead: i64,
    /// With its indexes.
    pub bytes: i64,
}

/// All tables of the ledger.
///
/// # Errors
/// When Postgres does.
pub async fn bloat(conn: &mut PgConnection) -> Result<Vec<Bloat>, StoreError> {
    Ok(sqlx::query_as!(
        Bloat,
        r#"-- doctor::bloat
        select relname::text as "name!", n_live_tup as "live!", n_dead_tup as "dead!", pg_total_relation_size(relid) as "bytes!"
          from pg_stat_user_tables where schemaname = 'settled' order by relname"#
    )
    .fetch_all(conn)
    .await?)
}

/// A role with more rights on the ledger than its part needs.
#[derive(Debug, Clone)]
pub struct OddRole {
    /// The role.
    pub role: String,
    /// What it may.
    pub may: String,
}

/// Producers that may more than enqueue, and rights that everybody has.
///
/// # Errors
/// When Postgres does.
pub async fn odd_roles(conn: &mut PgConnection) -> Result<Vec<OddRole>, StoreError> {
    Ok(sqlx::query_as!(
        OddRole,
        r#"-- doctor::odd_roles
        select p.role::text as "role!", 'owns the ledger, so nothing keeps it from deciding' as "may!"
          from (select distinct role from settled.producers) p
          join pg_roles r on r.rolname = p.role
         where pg_has_role(r.oid, (select n.nspowner from pg_namespace n where n.nspname = 'settled'), 'member')
        union all
        select p.role::text, 'does not exist' from (select distinct role from settled.producers) p
         where not exists (select from pg_roles r where r.rolname = p.role)
        union all
        select 'public', 'may run settled.' || f.proname
          from pg_proc f join pg_namespace n on n.oid = f.pronamespace
         where n.nspname = 'settled' and f.proname in ('enqueue', 'cancel') and has_function_privilege('public', f.oid, 'execute')"#
    )
    .fetch_all(conn)
    .await?)
}

/// How a destination's controls stand.
#[derive(Debug, Clone)]
pub struct Controls {
    /// The destination.
    pub destination: String,
    /// Parked, and why.
    pub parked: Option<String>,
    /// When its self-test ran last.
    pub tested_at: Option<DateTime<Utc>>,
    /// Why the last one failed.
    pub test_failed: Option<String>,
    /// Age of the youngest witness, seconds.
    pub witness: Option<f64>,
}

/// Of all served destinations, by their current generation.
///
/// # Errors
/// When Postgres does.
pub async fn controls(conn: &mut PgConnection) -> Result<Vec<Controls>, StoreError> {
    Ok(sqlx::query_as!(
        Controls,
        r#"-- doctor::controls
        select d.name as "destination!", d.parked_reason as parked, g.tested_at, g.test_failed,
               (select extract(epoch from clock_timestamp() - max(w.started_at))::double precision
                  from settled.witnesses w where w.destination = d.name and w.generation = d.generation) as witness
          from settled.destinations d
          left join settled.generations g on g.destination = d.name and g.generation = d.generation
         where d.withdrawn_at is null order by d.name"#
    )
    .fetch_all(conn)
    .await?)
}

/// A running daemon, as its heartbeat tells.
#[derive(Debug, Clone)]
pub struct Alive {
    /// Its version.
    pub version: String,
    /// Seconds since its last heartbeat.
    pub silent: f64,
}

/// Daemons that have not said goodbye and were heard of within a day.
///
/// # Errors
/// When Postgres does.
pub async fn daemons(conn: &mut PgConnection) -> Result<Vec<Alive>, StoreError> {
    Ok(sqlx::query_as!(
        Alive,
        r#"-- doctor::daemons
        select version as "version!", extract(epoch from clock_timestamp() - heartbeat_at)::double precision as "silent!"
          from settled.workers
         where stopped_at is null and heartbeat_at > clock_timestamp() - interval '1 day'
         order by heartbeat_at desc"#
    )
    .fetch_all(conn)
    .await?)
}

/// Secrets that unsettled intents need, by name, with how many need them (up to 10,000 rows are looked at).
///
/// # Errors
/// When Postgres does.
pub async fn kids_in_use(conn: &mut PgConnection) -> Result<Vec<(String, i64)>, StoreError> {
    let rows = sqlx::query!(
        r#"-- doctor::kids_in_use
        select x.kid as "kid!", count(*) as "count!"
          from (select i.kid from settled.queue q join settled.intents i on i.id = q.intent_id
                 where i.kid is not null limit 10000) x
         group by x.kid order by x.kid"#
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.kid, row.count)).collect())
}
