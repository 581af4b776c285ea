//! Runs a command with a private Postgres beside it; `make test` does.

use std::process::ExitStatus;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use super::{Access, Cluster, Options};

/// Starts a cluster, runs the command with `SETTLED_TEST_POSTGRES` and `DATABASE_URL` naming it, and stops the cluster.
/// Returns the command's exit code; 128 and more where a signal ended it.
///
/// # Errors
/// When there is no command, no Postgres, or the command cannot be started.
pub async fn hold_postgres_for(command: Vec<String>) -> anyhow::Result<i32> {
    let (program, arguments) = command.split_first().context("name the command to run with Postgres")?;
    // The signals are taken over before the cluster exists, so that none can end us and leave it behind.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let options = Options { access: Access::Trust, keep: false };
    let cluster = tokio::task::spawn_blocking(move || Cluster::start(&options)).await??;
    let url = cluster.url("postgres");
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .env("SETTLED_TEST_POSTGRES", &url)
        .env("DATABASE_URL", &url)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // The terminal sends Ctrl-C to the command as well; it ends in its own way.
            _ = interrupt.recv() => {}
            _ = terminate.recv() => child.start_kill()?,
        }
    };
    tokio::task::spawn_blocking(move || drop(cluster)).await?;
    Ok(code(status))
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
