//! A real daemon, asked by schemathesis what its description allows and forbids.
//!
//! `SETTLED_TEST_SCHEMATHESIS` names the program; `.ci/run` installs it. Without it the test says that it is skipped.

use std::process::{Command, Stdio};

use crate::support::db::Database;

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "a skipped test says so, and the summary is shown")]
async fn schemathesis_finds_no_answer_that_is_not_described() {
    let Some(tool) = std::env::var_os("SETTLED_TEST_SCHEMATHESIS") else {
        assert!(
            std::env::var_os("SETTLED_REQUIRE_REAL").is_none_or(|v| v != "1"),
            "SETTLED_TEST_SCHEMATHESIS is not set"
        );
        println!("skipped: SETTLED_TEST_SCHEMATHESIS is not set");
        return;
    };
    let db = Database::new().await;
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis/run"));
    command.arg(env!("CARGO_BIN_EXE_settled")).arg(&db.url).env("SETTLED_TEST_SCHEMATHESIS", tool).stdin(Stdio::null());
    command.env_remove("SETTLED_CONFIG").env_remove("SETTLED_DATABASE_URL");
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{told}\n{}", String::from_utf8_lossy(&ended.stderr));
    println!("{told}");
}
