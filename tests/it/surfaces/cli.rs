//! The built binary: what it prints, and its exit codes.

use std::process::{Command, Output};

use crate::support::db::Database;

fn settled(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settled"));
    command.args(arguments).env_remove("SETTLED_CONFIG").env_remove("SETTLED_DATABASE_URL");
    command.envs(environment.iter().copied());
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn in_database(db: &Database, arguments: &[&str]) -> Output {
    settled(arguments, &[("SETTLED_DATABASE_URL", &db.url)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_listed_and_revoked() {
    let db = Database::new().await;
    let made = in_database(&db, &["tokens", "create", "responder", "ada", "--expires-in", "90d"]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let token = out(&made).trim().to_owned();
    assert!(token.starts_with("stl_responder_"));
    assert!(err(&made).contains("shown only now"));
    let listed = out(&in_database(&db, &["tokens", "list", "--json"]));
    let row: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(row["principal"], "ada");
    assert!(!listed.contains(token.rsplit('_').next().unwrap()));
    let id = row["id"].as_str().unwrap();
    assert_eq!(in_database(&db, &["tokens", "revoke", id]).status.code(), Some(0));
    assert_eq!(in_database(&db, &["tokens", "revoke", id]).status.code(), Some(3));
    let lacking = in_database(&db, &["tokens", "create", "producer", "bot"]);
    assert_eq!(lacking.status.code(), Some(65));
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_and_resume_name_one_scope_and_a_reason() {
    let db = Database::new().await;
    assert_eq!(in_database(&db, &["pause", "--all"]).status.code(), Some(2), "a reason is required");
    assert_eq!(in_database(&db, &["pause", "--reason", "x"]).status.code(), Some(2), "a scope is required");
    let paused = in_database(&db, &["pause", "--destination", "erp", "--reason", "maintenance"]);
    assert_eq!(out(&paused), "destination erp paused\n");
    assert_eq!(
        out(&in_database(&db, &["pause", "--destination", "erp", "--reason", "again"])),
        "destination erp was paused already\n"
    );
    assert_eq!(out(&in_database(&db, &["resume", "--destination", "erp"])), "destination erp resumed\n");
    assert_eq!(in_database(&db, &["resume", "--destination", "erp"]).status.code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_is_harmless_when_three_run_it_at_once() {
    let db = Database::new().await;
    sqlx::query("drop schema settled cascade").execute(&db.pool).await.unwrap();
    sqlx::query("drop table _sqlx_migrations").execute(&db.pool).await.unwrap();
    let runs: Vec<_> = (0..3)
        .map(|_| {
            let url = db.url.clone();
            std::thread::spawn(move || settled(&["migrate", "--json"], &[("SETTLED_DATABASE_URL", &url)]))
        })
        .collect();
    for run in runs {
        let output = run.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(out(&output).starts_with("{\"schema_version\":"));
    }
}

#[test]
fn an_unreachable_database_is_69_and_a_wrong_configuration_78() {
    let away = settled(&["tokens", "list"], &[("SETTLED_DATABASE_URL", "postgres://127.0.0.1:1/x")]);
    assert_eq!(away.status.code(), Some(69), "{}", err(&away));
    assert!(out(&away).is_empty());
    let missing = settled(&["tokens", "list", "--config", "/nonexistent/settled.toml"], &[]);
    assert_eq!(missing.status.code(), Some(78));
    assert!(err(&missing).contains("/nonexistent/settled.toml"), "{}", err(&missing));
}

#[test]
fn check_fails_on_an_unknown_key_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("settled.toml");
    std::fs::write(&path, "[instance]\nname = \"a\"\nregoin = \"eu\"\n").unwrap();
    let checked = settled(&["check", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(checked.status.code(), Some(78));
    assert!(out(&checked).contains("instance.regoin"), "{}", out(&checked));
    assert!(out(&checked).contains("unknown field"), "{}", out(&checked));
}
