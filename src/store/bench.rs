//! Statements of `settled bench`: what a producer would run, and the bare inserts it is compared with.

use std::collections::BTreeMap;

use sqlx::PgPool;

/// The yardstick's table.
///
/// # Errors
/// When Postgres does.
pub async fn bare_table(pool: &PgPool) -> Result<(), sqlx::Error> {
    // Not in the schema, so no checked macro can name it.
    sqlx::raw_sql("create table public.bare (id uuid primary key, n bigint, payload text)").execute(pool).await?;
    Ok(())
}

/// One bare insert of the bytes of a request.
///
/// # Errors
/// When Postgres does.
pub async fn bare_insert(pool: &PgPool, n: i64) -> Result<(), sqlx::Error> {
    sqlx::query("-- bench::bare_insert\ninsert into public.bare values ($1, $2, $3)")
        .bind(uuid::Uuid::now_v7())
        .bind(n)
        .bind(payload())
        .execute(pool)
        .await?;
    Ok(())
}

/// Many bare inserts in one statement.
///
/// # Errors
/// When Postgres does.
pub async fn bare_inserts(pool: &PgPool, from: i64, count: u32) -> Result<(), sqlx::Error> {
    let ids: Vec<uuid::Uuid> = (0..count).map(|_| uuid::Uuid::now_v7()).collect();
    let numbers: Vec<i64> = (from..from + i64::from(count)).collect();
    let payloads = vec![payload(); count as usize];
    sqlx::query(
        "-- bench::bare_inserts\ninsert into public.bare select * from unnest($1::uuid[], $2::bigint[], $3::text[])",
    )
    .bind(ids)
    .bind(numbers)
    .bind(payloads)
    .execute(pool)
    .await?;
    Ok(())
}

/// One enqueue in its own transaction.
///
/// # Errors
/// When Postgres does.
pub async fn enqueue(pool: &PgPool, destination: &str, reference: &str, run_id: &str) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"-- bench::enqueue
        select verdict as "verdict!" from settled.enqueue($4, $1, $2::text::json, $3, 1, '{"tenant": "bench"}')"#,
        reference,
        payload(),
        run_id,
        destination,
    )
    .fetch_one(pool)
    .await?;
    Ok(())
}

/// Many in one transaction: `name-0`, `name-1`, …
///
/// # Errors
/// When Postgres does.
pub async fn enqueue_range(
    pool: &PgPool,
    destination: &str,
    name: &str,
    range: std::ops::Range<u32>,
) -> Result<(), sqlx::Error> {
    let payload = if destination.starts_with("mail") { mail() } else { payload() };
    let items: Vec<String> = range
        .map(|n| {
            format!(
                r#"{{"destination":"{destination}","reference":"{name}-{n}","payload":{payload},"run_id":"{name}-{n}","step":1}}"#
            )
        })
        .collect();
    sqlx::query!(
        r#"-- bench::enqueue_range
        select count(*) as "count!" from settled.enqueue_many($1::text::json, 'all_or_nothing', '{"tenant": "bench"}')"#,
        format!("[{}]", items.join(",")),
    )
    .fetch_one(pool)
    .await?;
    Ok(())
}

/// Rows that are there already, made without the checks of an enqueue: `settled` ones as they stand long after a send, or
/// ones that are due.
///
/// # Errors
/// When Postgres does.
pub async fn fill(
    pool: &PgPool,
    destination: &str,
    rows: std::ops::Range<i64>,
    settled: bool,
) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    // They break no rule that a trigger keeps, and asking a million times would take the longest time.
    sqlx::raw_sql("set local session_replication_role = replica; set local synchronous_commit = off")
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        r#"-- bench::fill
        with n as materialized (
            select n, settled.uuid_v7() as id, clock_timestamp() as at from generate_series($2::bigint, $5::bigint - 1) n),
        i as (
            insert into settled.intents (id, tenant, destination, effect_scope, reference, canon_version, fingerprint,
                declarations, due_at, kid, key, attempt, evidence, version, state, settled_at, sent_at)
            select n.id, 'bench', $1, $1, 'filled-' || n.n, 1, sha256(n.id::text::bytea), 1, n.at,
                   case when $3 then 'k1' end, case when $3 then md5(n.id::text) end, $3::int, $3::int, $3::int,
                   case when $3 then 'sent' else 'pending' end, case when $3 then n.at end, case when $3 then n.at end
              from n),
        r as (
            insert into settled.requests (id, intent_id, tenant, run_id, step, reference, fingerprint, canon_version, verdict,
                surface, principal)
            select n.id, n.id, 'bench', 'filled-' || n.n, 1, 'filled-' || n.n, '', 1, 'accepted', 'sql', 'bench' from n),
        p as (
            insert into settled.payloads (intent_id, salt, body) select n.id, decode(md5(n.id::text), 'hex'), $4::text from n),
        a as (
            insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until,
                closed_at, closure_at, outcome, report)
            select n.id, 1, 'send', n.id, n.id, 'filled', n.at, n.at, n.at, n.at, 'sent',
                   '{"outcome":{"outcome":"sent"},"report":{"stage":"replied","code":200}}'
              from n where $3)
        insert into settled.queue (intent_id, destination, tenant, kind, due_at)
        select n.id, $1, 'bench', 'send', n.at from n where not $3"#,
        destination,
        rows.start,
        settled,
        payload(),
        rows.end,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

/// Refreshes the planner's figures.
///
/// # Errors
/// When Postgres does.
pub async fn analyze(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("vacuum analyze").execute(pool).await?;
    Ok(())
}

/// Writes everything to disk, so that the next change of each page writes the whole page to the log.
///
/// # Errors
/// When Postgres does.
pub async fn checkpoint(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::raw_sql("checkpoint").execute(pool).await?;
    Ok(())
}

/// Settings of a server that has work to do: what fits into memory, and no checkpoint in the middle of a run.
///
/// # Errors
/// When Postgres does.
pub async fn tune(pool: &PgPool) -> Result<(), sqlx::Error> {
    for setting in ["max_wal_size = '8GB'", "checkpoint_timeout = '15min'"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("alter system set {setting}"))).execute(pool).await?;
    }
    sqlx::raw_sql("select pg_reload_conf()").execute(pool).await?;
    Ok(())
}

/// Bytes of WAL so far.
///
/// # Errors
/// When Postgres does.
pub async fn wal_position(pool: &PgPool) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::wal_position
        select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::double precision as "bytes!""#
    )
    .fetch_one(pool)
    .await
}

/// Bytes of all tables and indexes of the ledger.
///
/// # Errors
/// When Postgres does.
pub async fn table_bytes(pool: &PgPool) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::table_bytes
        select coalesce(sum(pg_total_relation_size(c.oid)), 0)::double precision as "bytes!"
          from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'settled' and c.relkind = 'r'"#
    )
    .fetch_one(pool)
    .await
}

/// How many intents have been sent.
///
/// # Errors
/// When Postgres does.
pub async fn sent(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::sent
        select count(*) as "count!" from settled.intents where state = 'sent'"#
    )
    .fetch_one(pool)
    .await
}

/// How many rows the queue has.
///
/// # Errors
/// When Postgres does.
pub async fn unsent(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::unsent
        select count(*) as "count!" from settled.queue"#
    )
    .fetch_one(pool)
    .await
}

/// How many intents have no end yet, those that wait for a person left out.
///
/// # Errors
/// When Postgres does.
pub async fn without_end(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"-- bench::without_end
        select count(*) as "count!" from settled.queue where kind <> 'wait'"#
    )
    .fetch_one(pool)
    .await
}

/// What became of intents in doubt.
#[derive(Debug, Clone, Copy)]
pub struct Doubts {
    /// With an attempt whose outcome was in doubt.
    pub unknown: i64,
    /// Refused by the receiver.
    pub refused: i64,
    /// In doubt, and a person is asked.
    pub left_to_a_person: i64,
}

/// Counts them.
///
/// # Errors
/// When Postgres does.
pub async fn doubts(pool: &PgPool) -> Result<Doubts, sqlx::Error> {
    sqlx::query_as!(
        Doubts,
        r#"-- bench::doubts
        select (select count(distinct intent_id) from settled.attempts where outcome = 'ambiguous') as "unknown!",
               (select count(*) from settled.intents where state = 'failed') as "refused!",
               (select count(distinct e.intent_id) from settled.escalations e
                 where e.closed_at is null and e.reason <> 'refused' and e.intent_id is not null) as "left_to_a_person!""#
    )
    .fetch_one(pool)
    .await
}

/// Open escalations by reason.
///
/// # Errors
/// When Postgres does.
pub async fn escalations(pool: &PgPool) -> Result<BTreeMap<String, u64>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"-- bench::escalations
        select reason, count(*) as "count!" from settled.escalations where closed_at is null group by reason"#
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.reason, u64::try_from(row.count).unwrap_or(0))).collect())
}

/// About 500 bytes.
pub fn payload() -> String {
    format!(r#"{{"type":"invoice.created","data":{{"amount":40000,"currency":"EUR","text":"{}"}}}}"#, "x".repeat(420))
}

/// The same as a mail.
fn mail() -> String {
    format!(r#"{{"to":"somebody@bench.test","subject":"Invoice","text":"{}"}}"#, "x".repeat(420))
}
