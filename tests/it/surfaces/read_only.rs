//! A server that only reads, as after a failover: the daemon says so, and comes back by itself.

use std::{sync::Arc, time::Duration};

use settled::{clock::SystemClock, config, daemon, demo::fakes::webhook::Webhook, lifecycle::Shutdown, store};
use sqlx::{Connection, PgConnection};

use super::starting::until;
use crate::support::{
    db::Database,
    fragments::mute_webhook,
    world::{TENANT, new_request},
};

async fn on_database(db: &Database, what: &str) {
    let sql = format!("do $$ begin execute format('alter database %I {what}', current_database()); end $$");
    let mut conn = PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("set transaction_read_only = off; {sql}")))
        .execute(&mut conn)
        .await
        .unwrap();
    conn.close().await.unwrap();
}

/// The sessions of the daemon only.
async fn cut_sessions(db: &Database) {
    sqlx::query(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'settled' and datname = current_database()",
    )
    .execute(&db.pool)
    .await
    .unwrap();
}

/// New sessions only read, and those stay so for their whole life: what a pool is left with after a failover.
#[tokio::test(flavor = "multi_thread")]
async fn case_107_sessions_that_only_read_are_retired_and_nothing_is_lost_or_sent_twice() {
    let db = Database::new().await;
    let receiver = Webhook::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("key");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let entry = mute_webhook("erp", &receiver, "in_doubt = \"person\"").replace("\n[", "\n[destinations.");
    let text = format!(
        "destinations_revision = 1\n[instance]\nname = \"test\"\nregion = \"eu\"\n[database]\nurl = \"{}\"\nallow_fsync_off = true\n[http]\nlisten = \"127.0.0.1:0\"\n\
         [dispatcher]\nheartbeat = \"200ms\"\n[keys]\nactive = \"k1\"\nsecrets = [{{ kid = \"k1\", file = {secret:?} }}]\n[[destinations]]\n{entry}",
        db.url
    );
    let settings = config::load::parse_text("test", &text, std::iter::empty()).unwrap();
    let daemon = daemon::start(settings, false, Arc::new(SystemClock), Shutdown::new()).await.unwrap();
    let mut conn = db.pool.acquire().await.unwrap();
    store::producers::grant_destination(&mut conn, TENANT, "erp").await.unwrap();
    until(daemon.address, "/readyz", |status, _| status == 200).await;

    on_database(&db, "set default_transaction_read_only = on").await;
    cut_sessions(&db).await;
    until(daemon.address, "/readyz", |status, told| status == 503 && told.contains("only reads")).await;
    for n in 0..20 {
        let request = new_request("erp", &format!("INV-{n}"), r#"{"type":"x"}"#, "run-1", n);
        store::requests::enqueue(&mut conn, &request).await.unwrap();
    }
    assert_eq!(receiver.effects().all().len(), 0);

    // The server takes writes again; the sessions of the daemon do not know.
    on_database(&db, "reset default_transaction_read_only").await;
    until(daemon.address, "/readyz", |status, _| status == 200).await;
    let sent = async {
        while sqlx::query_scalar::<_, i64>("select count(*) from settled.intents where state = 'sent'")
            .fetch_one(&db.pool)
            .await
            .unwrap()
            < 20
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), sent).await.expect("all are sent");
    assert_eq!(receiver.effects().all().len(), 20);
    daemon.stop().await;
}
