//! A million settled rows change no plan: what is asked at every poll and at every enqueue goes by an index.

use settled::store::{attempts, queue, requests};
use sqlx::{PgConnection, PgPool, Row};
use uuid::Uuid;

use crate::support::db::Database;

/// A million sent intents with their requests and attempts; 20,000 that wait for tomorrow; 1,000 sends and doubts that are due.
/// Only what the plans read, with the indexes made afterwards.
const FILL: &str = "
begin;
set local session_replication_role = replica;
set local maintenance_work_mem = '256MB';
create temp table index_of (definition text) on commit drop;
insert into index_of select pg_get_indexdef(indexrelid) from pg_index
  where indrelid in ('settled.intents'::regclass, 'settled.requests'::regclass, 'settled.attempts'::regclass);
alter table settled.intents drop constraint intents_pkey cascade, drop constraint consistent;
alter table settled.requests drop constraint requests_pkey, drop constraint requests_tenant_run_id_step_slot_revision_key;
alter table settled.attempts drop constraint attempts_pkey;
drop index settled.intents_effect, settled.intents_reference, settled.requests_intent, settled.attempts_open;
insert into settled.destinations (name, channel, effect_scope, revision, generation, rules, definition)
  values ('hooks', 'webhook', 'hooks', 1, 'g', '{}', '{}');
insert into settled.grants (tenant, destination) values ('acme', 'hooks');
insert into settled.intents (id, tenant, destination, effect_scope, reference, state, fingerprint, canon_version, declarations, attempt,
    key, kid, due_at, settled_at, sent_at)
  select lpad(to_hex(n), 32, '0')::uuid, 'acme', 'hooks', 'hooks', 'r-' || n,
    case when n <= 1000000 then 'sent' when n % 2 = 0 then 'pending' else 'unknown' end, '', 1, 1, (n <= 1000000)::int, 'k', 'k', now(),
    case when n <= 1000000 then now() end, case when n <= 1000000 then now() end
  from generate_series(1, 1021000) n;
insert into settled.requests (id, intent_id, tenant, run_id, step, reference, fingerprint, canon_version, verdict, surface, principal)
  select lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, 'acme', 'run-' || n, 1, 'r-' || n, '', 1, 'accepted', 'sql', 'p'
  from generate_series(1, 1021000) n;
insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until, closed_at, outcome)
  select lpad(to_hex(n), 32, '0')::uuid, 1, 'send', '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 'g',
    now(), now(), now(), 'sent'
  from generate_series(1, 1000000) n;
insert into settled.payloads (intent_id, salt, body)
  select lpad(to_hex(n), 32, '0')::uuid, '', '{}' from generate_series(990000, 1021000) n;
insert into settled.queue (intent_id, destination, tenant, kind, due_at)
  select lpad(to_hex(n), 32, '0')::uuid, 'hooks', 'acme', case when n % 2 = 0 then 'send' else 'ask' end,
    now() + case when n > 1020000 then interval '-1 s' else interval '1 day' end
  from generate_series(1000001, 1021000) n;
do $$ declare d text; begin for d in select definition from index_of loop execute d; end loop; end $$;
commit;
analyze settled.intents, settled.requests, settled.attempts, settled.payloads, settled.queue";

/// The plan of a statement that the store has prepared on this connection, as the daemon runs it.
async fn plan(conn: &mut PgConnection, name: &str) -> String {
    let row = sqlx::query(
        "select name, cardinality(parameter_types) as n from pg_prepared_statements where statement like $1",
    )
    .bind(format!("-- {name}\n%"))
    .persistent(false)
    .fetch_one(&mut *conn)
    .await
    .unwrap_or_else(|e| panic!("{name}: {e}"));
    let nulls = vec!["null"; usize::try_from(row.get::<i32, _>("n")).unwrap()].join(", ");
    let explain = format!("explain (costs off) execute {} ({nulls})", row.get::<String, _>("name"));
    let lines = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(conn).await.unwrap();
    lines.iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// Scans of a table in this transaction: whole, and by index.
async fn scans(conn: &mut PgConnection) -> Vec<(String, i64, i64)> {
    let rows = sqlx::query(
        "select relname::text, seq_scan, coalesce(idx_scan, 0) as idx_scan from pg_stat_xact_user_tables
          where schemaname = 'settled' and relname in ('intents', 'requests', 'attempts', 'payloads') order by 1",
    )
    .fetch_all(conn)
    .await
    .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn with_a_million_settled_rows_every_look_up_names_its_index() {
    let db = Database::new().await;
    sqlx::raw_sql(FILL).execute(&db.pool).await.unwrap();
    // One session: what it has counted is there when it is asked for.
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .connect_with(settled::store::session::options(&db.url, Default::default()).unwrap())
        .await
        .unwrap();
    let mut tx = pool.begin().await.unwrap();
    let names = ["hooks".to_owned()];
    let due = queue::destinations_due(&mut tx, &names, &[1000], None).await.unwrap();
    assert_eq!(
        due.iter().map(|d| (d.destination.as_str(), d.open)).collect::<Vec<_>>(),
        [("hooks", 1000)],
        "counted up to the cap"
    );
    assert_eq!(queue::pick(&mut tx, "hooks", 16, None).await.unwrap().len(), 16);
    assert_eq!(
        queue::asking::claim_questions(&mut tx, "hooks", 16, 60.0, Uuid::new_v4(), None).await.unwrap().len(),
        16
    );
    let lapse = attempts::Lapse { heartbeat_limit: 30.0, began_at: chrono::Utc::now(), uptime: 1e6, distrusted: &[] };
    assert!(attempts::lapsed(&mut tx, None, &lapse, 100).await.unwrap().is_empty());
    for (name, indexes) in [
        ("queue::destinations_due", &["queue_due"][..]),
        ("queue::pick", &["queue_due", "intents_pkey", "payloads_pkey", "requests_intent"]),
        ("queue::claim_questions", &["queue_due", "queue_pkey"]),
        ("attempts::lapsed", &["attempts_open"]),
    ] {
        let plan = plan(&mut tx, name).await;
        for index in indexes {
            assert!(plan.contains(index), "{name} without {index}:\n{plan}");
        }
        for table in ["intents", "requests", "attempts", "payloads", "queue"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{name} reads all of {table}:\n{plan}");
        }
    }
    tx.rollback().await.unwrap();

    // A new one, the same call again, and another call for the same effect; alone and in bulk.
    let before = used(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    let new = |n: i64, run: &str| requests::NewRequest {
        destination: "hooks".to_owned(),
        reference: format!("R-{n}"),
        payload: "{}".to_owned(),
        run_id: Some(format!("{run}-{n}")),
        step: Some(1),
        options: requests::Options { tenant: Some("acme".to_owned()), ..Default::default() },
    };
    let mut words = Vec::new();
    for request in [new(2_000_000, "run"), new(999_999, "run"), new(999_998, "other")] {
        words.push(requests::enqueue(&mut tx, &request).await.unwrap().verdict.as_str());
    }
    assert_eq!(words, ["accepted", "replayed", "already_requested"]);
    let batch: Vec<_> = (0..200).map(|n| new(if n < 100 { 3_000_000 + n } else { 999_000 + n }, "run")).collect();
    let told = settled::store::bulk::enqueue_many(&mut tx, &batch, settled::store::bulk::Mode::PerItem).await.unwrap();
    assert_eq!(told.iter().filter(|t| t.as_ref().is_ok_and(|r| r.verdict == requests::Verdict::Accepted)).count(), 100);
    let scans = scans(&mut tx).await;
    tx.rollback().await.unwrap();
    for (table, whole, by_index) in &scans {
        assert_eq!(*whole, 0, "{table} was read as a whole: {scans:?}");
        assert!(*by_index > 0 || table == "attempts", "{table}: {scans:?}");
    }
    assert_eq!(scans.len(), 4);
    let after = used(&pool).await;
    for ((index, before), (_, after)) in before.iter().zip(&after) {
        assert!(after > before, "{index} was not used: {before} scans before, {after} after");
    }
}

/// Scans of the indexes that an enqueue is answered by: the effect, and the identity of the call.
async fn used(pool: &PgPool) -> Vec<(String, i64)> {
    let mut conn = pool.acquire().await.unwrap();
    sqlx::query("select pg_stat_force_next_flush()").execute(&mut *conn).await.unwrap();
    sqlx::query("select 1").execute(&mut *conn).await.unwrap();
    sqlx::query_as(
        "select indexrelname::text, idx_scan from pg_stat_user_indexes
          where indexrelname in ('intents_effect', 'requests_tenant_run_id_step_slot_revision_key') order by 1",
    )
    .fetch_all(&mut *conn)
    .await
    .unwrap()
}
