//! Behind PgBouncer in transaction mode: it works where the pooler keeps prepared statements, and otherwise the daemon says
//! at the start what stands in the way.

use std::{collections::HashSet, time::Duration};

use settled::{
    clock::SystemClock,
    config,
    daemon::{self, Daemon},
    demo::fakes::webhook::Webhook,
    lifecycle::Shutdown,
    store,
};
use sqlx::{Connection, PgConnection};

use crate::support::{
    db::Database,
    fragments::mute_webhook,
    pgbouncer::{Age, PgBouncer},
    world::{TENANT, new_request},
};

const KEEPS: &str = "ignore_startup_parameters = extra_float_digits\nmax_prepared_statements = 200";

/// A daemon with at most one destination.
async fn start(url: &str, pooler: &str, destinations: &str, migrate: bool) -> anyhow::Result<Daemon> {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("key");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let text = format!(
        "destinations_revision = 1\n[instance]\nname = \"test\"\nregion = \"eu\"\n[database]\nurl = \"{url}\"\nallow_fsync_off = true\npooler = \"{pooler}\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\n[keys]\nactive = \"k1\"\nsecrets = [{{ kid = \"k1\", file = {secret:?} }}]\n{destinations}"
    );
    let settings = config::load::parse_text("test", &text, std::iter::empty()).unwrap();
    daemon::start(settings, migrate, std::sync::Arc::new(SystemClock), Shutdown::new()).await
}

async fn refusal(url: &str, pooler: &str) -> String {
    match start(url, pooler, "", false).await {
        Ok(daemon) => {
            daemon.stop().await;
            panic!("it started")
        }
        Err(error) => format!("{error:#}"),
    }
}

/// The database brings the settings, as a role of its own would.
async fn bring_settings(db: &Database) {
    let all = [
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("jit", "off"),
        ("default_transaction_isolation", "read committed"),
        ("lock_timeout", "5s"),
        ("idle_in_transaction_session_timeout", "60s"),
    ];
    for (name, value) in all {
        let sql = format!(
            "do $$ begin execute format('alter database %I set {name} = ''{value}''', current_database()); end $$"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&db.pool).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_refuses_the_settings_of_a_session_is_named_at_the_start() {
    let Some(pooler) = PgBouncer::start(Age::Older, "ignore_startup_parameters = extra_float_digits") else { return };
    let db = Database::new().await;
    let told = refusal(&pooler.through(&db.url), "none").await;
    assert!(told.contains("refuses settings of a session") && told.contains("database.pooler"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_drops_the_settings_of_a_session_is_named_at_the_start() {
    let Some(pooler) = PgBouncer::start(Age::Older, "ignore_startup_parameters = extra_float_digits,options") else {
        return;
    };
    let db = Database::new().await;
    let told = refusal(&pooler.through(&db.url), "none").await;
    assert!(told.contains("plan_cache_mode is auto") && told.contains("database.pooler"), "{told}");
    let told = refusal(&pooler.through(&db.url), "transaction").await;
    assert!(told.contains("alter role") && told.contains("set plan_cache_mode = 'force_generic_plan'"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_108_a_pooler_that_does_not_keep_prepared_statements_is_refused_at_the_start() {
    let Some(pooler) = PgBouncer::start(Age::Older, "ignore_startup_parameters = extra_float_digits") else { return };
    let db = Database::new().await;
    bring_settings(&db).await;
    let told = refusal(&pooler.through(&db.url), "transaction").await;
    assert!(told.contains("does not keep prepared statements") && told.contains("1.21"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn case_108_and_109_two_daemons_behind_a_pooler_send_a_thousand_intents_once_each_and_listen_to_nothing() {
    let Some(pooler) = PgBouncer::start(Age::Keeps, KEEPS) else { return };
    let db = Database::new().await;
    bring_settings(&db).await;
    let receiver = Webhook::start().await.unwrap();
    let entry = mute_webhook("erp", &receiver, "in_doubt = \"person\"");
    // As an array of tables in the file.
    let entry = entry.replace("\n[", "\n[destinations.");
    let url = pooler.through(&db.url);
    let one = start(&url, "transaction", &format!("[[destinations]]\n{entry}"), false).await.unwrap();
    let two = start(&url, "transaction", &format!("[[destinations]]\n{entry}"), false).await.unwrap();
    let mut conn = PgConnection::connect(&db.url).await.unwrap();
    store::producers::grant_destination(&mut conn, TENANT, "erp").await.unwrap();
    for n in 0..1000 {
        let request = new_request("erp", &format!("INV-{n}"), r#"{"type":"x"}"#, "run-1", n);
        store::requests::enqueue(&mut conn, &request).await.unwrap();
    }
    let sent = async {
        while sqlx::query_scalar::<_, i64>("select count(*) from settled.intents where state = 'sent'")
            .fetch_one(&db.pool)
            .await
            .unwrap()
            < 1000
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), sent).await.expect("all are sent");
    let keys: HashSet<_> = receiver.effects().all().into_iter().map(|e| e.key).collect();
    assert_eq!((keys.len(), receiver.effects().all().len()), (1000, 1000));
    let listening: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'",
    )
    .fetch_one(&db.pool)
    .await
    .unwrap();
    assert_eq!(listening, 0, "through a pooler nothing would be heard; work is found by looking");
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_110_three_daemons_that_start_at_once_through_a_pooler_migrate_once_and_leave_no_lock() {
    let Some(pooler) = PgBouncer::start(Age::Keeps, KEEPS) else { return };
    let db = Database::new().await;
    sqlx::raw_sql("drop schema settled cascade; drop table _sqlx_migrations").execute(&db.pool).await.unwrap();
    bring_settings(&db).await;
    let url = pooler.through(&db.url);
    let all = tokio::join!(
        start(&url, "transaction", "", true),
        start(&url, "transaction", "", true),
        start(&url, "transaction", "", true)
    );
    let locks: i64 = sqlx::query_scalar(
        "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())",
    )
    .fetch_one(&db.pool)
    .await
    .unwrap();
    assert_eq!(locks, 0);
    for daemon in [all.0, all.1, all.2] {
        daemon.unwrap().stop().await;
    }
    let (applied, migrations): (i64, i64) =
        sqlx::query_as("select count(*), count(distinct version) from _sqlx_migrations where success")
            .fetch_one(&db.pool)
            .await
            .unwrap();
    assert_eq!((applied, usize::try_from(migrations).unwrap()), (migrations, store::MIGRATOR.iter().count()));
}
