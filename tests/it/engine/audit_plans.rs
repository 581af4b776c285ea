//! What is asked at every poll reads what is due, not what waits: with a long queue and a long history behind it.

use settled::store::{attempts, escalations, generations, intents, queue};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::support::db::Database;

/// Rows read from queue, intents, attempts, journal and escalations in this transaction, by index or not.
async fn rows_read(conn: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint from pg_stat_xact_user_tables
          where schemaname = 'settled' and relname in ('queue', 'intents', 'attempts', 'journal', 'escalations')",
    )
    .fetch_one(conn)
    .await
    .unwrap()
}

/// 20,000 settled ones, and 20,000 that wait for tomorrow at `busy`; nothing at `idle`.
async fn filled() -> (Database, PgPool) {
    let db = Database::new().await;
    sqlx::raw_sql(
        "begin;
         set local session_replication_role = replica;
         insert into settled.destinations (name, channel, effect_scope, revision, generation, rules, definition)
           select n, 'webhook', n, 1, 'g', '{}', '{}' from unnest(array['busy', 'idle']) n;
         insert into settled.intents (id, tenant, destination, effect_scope, reference, state, fingerprint, canon_version,
             declarations, attempt, key, kid, due_at, deadline, settled_at, sent_at)
           select settled.uuid_v7(), 'acme', 'busy', 'busy', 'r-' || n, case when n <= 20000 then 'sent' when n < 30000 then 'pending' else 'unknown' end,
             '', 1, 1, (n <= 20000)::int, case when n <= 20000 then md5(n::text) end, case when n <= 20000 then 'k' end,
             now() + interval '1 day', case when n > 20000 then now() + interval '2 days' end,
             case when n <= 20000 then now() end, case when n <= 20000 then now() end
           from generate_series(1, 40000) n;
         insert into settled.workers (id, name, version, stopped_at) values (gen_random_uuid(), 'gone', '1', now());
         insert into settled.queue (intent_id, destination, tenant, kind, due_at, deadline)
           select id, destination, tenant, case when reference < 'r-3' then 'send' else 'ask' end, due_at, deadline
             from settled.intents where settled_at is null;
         insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until,
             closed_at, outcome)
           select id, 1, 'send', gen_random_uuid(), gen_random_uuid(), 'g', now(), now(), now(), 'sent'
             from settled.intents where settled_at is not null;
         insert into settled.escalations (id, subject, intent_id, reason, cause, summary, closed_at, resolution)
           select gen_random_uuid(), 'intent', id, 'deadline_near', 'c', 's', now(), 'r'
             from settled.intents where settled_at is not null;
         commit;
         analyze settled.intents, settled.queue, settled.attempts, settled.escalations",
    )
    .execute(&db.pool)
    .await
    .unwrap();
    let pool =
        PgPool::connect_with(settled::store::session::options(&db.url, Default::default()).unwrap()).await.unwrap();
    (db, pool)
}

#[tokio::test]
async fn no_poll_reads_what_is_not_due() {
    let (_db, pool) = filled().await;
    let middle: Uuid = sqlx::query_scalar("select id from settled.intents where reference = 'r-30000'")
        .fetch_one(&pool)
        .await
        .unwrap();
    let names = ["busy".to_owned(), "idle".to_owned()];
    let mut read: Vec<(&str, i64)> = Vec::new();
    macro_rules! measure {
        ($name:literal, $conn:ident => $call:expr) => {
            let mut tx = pool.begin().await.unwrap();
            let $conn = &mut *tx;
            $call.await.unwrap();
            read.push(($name, rows_read(&mut tx).await));
            tx.rollback().await.unwrap();
        };
    }
    measure!("destinations_due", c => queue::destinations_due(c, &names, &[1000, 1000], None));
    measure!("pick", c => queue::pick(c, "busy", 16, None));
    measure!("pick, idle", c => queue::pick(c, "idle", 16, None));
    measure!("with_questions_due", c => generations::with_questions_due(c, None));
    measure!("claim_questions", c => queue::asking::claim_questions(c, "busy", 16, 120.0, Uuid::new_v4(), None));
    measure!("past_deadline", c => queue::past_deadline(c, None, 200));
    measure!("deadline_near", c => escalations::deadline_near(c, 900.0, None, 200));
    let lapse = attempts::Lapse { heartbeat_limit: 30.0, began_at: chrono::Utc::now(), uptime: 1e6, distrusted: &[] };
    measure!("lapsed", c => attempts::lapsed(c, None, &lapse, 200));
    measure!("decisions_due", c => escalations::decisions_due(c, None, 100));
    measure!("namesakes", c => intents::namesakes(c, "r-7", 500));
    measure!("free_questions", c => queue::asking::free_questions(c, None, 30.0));
    measure!("withdrawn_with_work", c => generations::withdrawn_with_work(c));
    let polled = read.len();
    measure!("orphans", c => queue::orphans(c, middle, 100));
    measure!("open_unknowns, idle", c => queue::open_unknowns(c, "idle", 1000));
    measure!("open_unknowns, capped", c => queue::open_unknowns(c, "busy", 100));
    let allowed = |at: usize| if at < polled { 20 } else { 500 };
    let much: Vec<_> = read.iter().enumerate().filter(|(at, (_, rows))| *rows > allowed(*at)).collect();
    assert!(much.is_empty(), "{much:?} of {read:?}");
}
