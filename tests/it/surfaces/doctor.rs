//! `settled doctor`, and what is made from the definition of the command line.

use settled::store::{self, queue};
use sqlx::Connection;

use super::cli::{Installed, err, out, settled};

/// Level and text of every line about a subject.
fn about(told: &str, subject: &str) -> Vec<(String, String)> {
    let lines = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    lines
        .filter(|line| line["subject"].as_str().is_some_and(|s| s == subject))
        .map(|line| (text(&line["level"]), text(&line["text"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_at_clocks_roles_secrets_and_daemons() {
    let at = Installed::new().await;
    let told = out(&at.run(&["doctor", "--json"]));
    for subject in ["sessions", "schema", "clocks", "role", "locks", "doubt", "secrets", "repeats"] {
        let lines = about(&told, subject);
        assert!(!lines.is_empty() && lines.iter().all(|(level, _)| level == "ok"), "{subject}: {lines:?}");
    }
    // Nobody serves this ledger.
    assert_eq!(about(&told, "daemons")[0].0, "failed");
    assert_eq!(at.run(&["doctor"]).status.code(), Some(1));
    let mut conn = at.db.pool.acquire().await.unwrap();
    store::workers::register(&mut conn, uuid::Uuid::now_v7(), "test").await.unwrap();
    assert_eq!(about(&out(&at.run(&["doctor", "--json"])), "daemons")[0].0, "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_a_producer_that_could_decide_and_a_right_that_everybody_has() {
    let at = Installed::new().await;
    sqlx::raw_sql(
        "insert into settled.producers (role, tenant) values (session_user, 'acme');
         grant execute on all functions in schema settled to public",
    )
    .execute(&at.db.pool)
    .await
    .unwrap();
    let told = out(&at.run(&["doctor", "--json"]));
    let roles = about(&told, "roles");
    assert!(roles.iter().any(|(_, text)| text.contains("owns the ledger")), "{roles:?}");
    assert!(roles.iter().any(|(_, text)| text == "public may run settled.cancel"), "{roles:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_secrets_that_are_gone_and_a_schema_that_is_not_there() {
    let at = Installed::new().await;
    assert_eq!(
        at.run(&["enqueue", "hooks", "INV-1", "--payload", "{}", "--idempotency-key", "k", "--tenant", "acme"])
            .status
            .code(),
        Some(0)
    );
    sqlx::query("update settled.intents set key = 'x', kid = 'k0'").execute(&at.db.pool).await.unwrap();
    let told = about(&out(&at.run(&["doctor", "--json"])), "secrets");
    assert!(told.iter().any(|(level, text)| level == "warning" && text.contains("`k0` is not there")), "{told:?}");
    sqlx::raw_sql("drop schema settled cascade; drop table _sqlx_migrations").execute(&at.db.pool).await.unwrap();
    let told = about(&out(&at.run(&["doctor", "--json"])), "schema");
    assert!(told[0].0 == "failed" && told[0].1.contains("settled migrate"), "{told:?}");
}

/// A transaction elsewhere keeps dead rows; the claim still reads what is due, and the pid is named.
#[tokio::test(flavor = "multi_thread")]
async fn case_111_a_transaction_that_pins_the_horizon_is_named_and_the_queue_drains_past_it() {
    let at = Installed::new().await;
    let mut holder = sqlx::PgConnection::connect(&at.db.url).await.unwrap();
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from settled.queue")
        .execute(&mut holder)
        .await
        .unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut holder).await.unwrap();
    let options = store::session::options(&at.db.url, Default::default()).unwrap();
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let mut conn = pool.acquire().await.unwrap();
    // A thousand come and go behind the back of the snapshot.
    for _ in 0..20 {
        sqlx::raw_sql(
            "begin; set local session_replication_role = replica;
             insert into settled.queue (intent_id, destination, tenant, kind, due_at)
               select gen_random_uuid(), 'hooks', 'acme', 'send', now() - interval '1 hour' from generate_series(1, 50);
             delete from settled.queue; commit",
        )
        .execute(&mut *conn)
        .await
        .unwrap();
    }
    let due = at.run(&["enqueue", "hooks", "INV-1", "--payload", "{}", "--idempotency-key", "k", "--tenant", "acme"]);
    assert_eq!(due.status.code(), Some(0), "{}", err(&due));
    let mut tx = conn.begin().await.unwrap();
    let picked = queue::pick(&mut tx, "hooks", 10, None).await.unwrap();
    assert_eq!(picked.len(), 1);
    tx.rollback().await.unwrap();
    // Older than what is told about, as far as the report can see.
    let told = store::doctor::open_transactions(&mut conn, 0.0).await.unwrap();
    let found = told.iter().find(|open| open.pid == pid).expect("it is named");
    assert!(found.pins_the_horizon);
}

#[test]
fn completions_name_the_commands_and_pages_are_written_for_each() {
    for shell in ["bash", "zsh", "fish"] {
        let made = settled(&["completions", shell], &[]);
        assert_eq!(made.status.code(), Some(0), "{}", err(&made));
        assert!(out(&made).contains("escalations") && out(&made).contains("enqueue"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    let made = settled(&["man", dir.path().to_str().unwrap()], &[]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let page = std::fs::read_to_string(dir.path().join("settled-escalations-claim.1")).unwrap();
    assert!(page.contains(".TH settled-escalations-claim 1"), "{page}");
    assert!(page.contains(".SH OPTIONS"));
    assert!(dir.path().join("settled.1").exists());
    let fresh = dir.path().join("fresh");
    let made = settled(&["man", fresh.to_str().unwrap()], &[]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    assert!(fresh.join("settled.1").exists());
    let nowhere = settled(&["man", "/nonexistent/there"], &[]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(err(&nowhere).contains("/nonexistent/there"), "{}", err(&nowhere));
}
