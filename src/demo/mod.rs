//! The guided demonstration and what it stands on: fake downstreams and a private Postgres.
//!
//! Called by `settled demo`, by the integration tests and by the crash suite. Nothing in here uses settled's own channels or
//! look-ups: what judges the daemon must not share its mistakes. The daemon runs as a child process and is spoken to as
//! anybody would: by SQL, HTTP and its command line.

pub mod application;
pub mod client;
pub mod cluster;
pub mod configuration;
pub mod daemon;
pub mod fakes;
pub mod house;
pub mod scenes;
pub mod sum;
pub mod telling;

use anyhow::Context;
use house::House;
use telling::Telling;
use tokio::signal::unix::{SignalKind, signal};

/// `settled demo`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arguments {
    /// End after the scenes instead of running on.
    pub once: bool,
    /// Leave the files of Postgres and the daemon behind.
    pub keep: bool,
}

/// Plays the demonstration. Returns the exit code: 0, or 1 when a promise was not kept.
///
/// # Errors
/// [`cluster::ClusterError::Missing`] where there is no Postgres and this user cannot install it (exit 69); otherwise what
/// kept the scenes from being played.
pub async fn run(arguments: Arguments) -> anyhow::Result<i32> {
    // Taken over first: Ctrl-C must end in an orderly removal of everything.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        code = play(arguments) => code,
        _ = interrupt.recv() => Ok(130),
        _ = terminate.recv() => Ok(143),
    }
}

async fn play(arguments: Arguments) -> anyhow::Result<i32> {
    let mut tell = Telling::default();
    let house = House::build(arguments.keep, &tell).await?;
    for scene in &scenes::SCENES {
        tell.scene(scene.title, scene.story);
        (scene.play)(&house, &tell).await.with_context(|| format!("the scene \"{}\"", scene.title))?;
    }
    let sum = sum::sum(&house).await?;
    tell.says("");
    tell.says(&sum.table());
    if arguments.once {
        tell.says("\nWithout --once all of this runs on, and the last one is yours to decide.");
    } else {
        how_to_decide(&house, &tell).await?;
    }
    if arguments.keep {
        tell.says(&format!("Kept: {} and {}", house.directory().display(), house.database()));
    }
    if !arguments.once {
        tell.says("Everything runs on; Ctrl-C ends it and removes it.");
        tell.says(&sum.last_line());
        std::future::pending::<()>().await;
    }
    tell.says(&sum.last_line());
    Ok(i32::from(sum.lost + sum.doubled > 0))
}

/// What is open, and how it is settled.
async fn how_to_decide(house: &House, tell: &Telling) -> anyhow::Result<()> {
    tell.says("\nOne decision is yours:");
    for line in house.daemon.ask(&["list", "--state", "unknown"]).await?.lines() {
        tell.says(&format!("  {line}"));
    }
    tell.says("  Ask the partner as you would by telephone, then say what you know:");
    tell.says(&format!("    curl {}/events", house.partner.url()));
    tell.says(&format!("    {}", house.daemon.spelled("escalations list")));
    tell.says("");
    Ok(())
}
