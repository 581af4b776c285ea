//! The command line: data on stdout, words on stderr, `--json` everywhere, exit codes from [`exit`].
//!
//! This module only parses into a [`Command`] and runs the commands that read or write the ledger. `main.rs` alone knows
//! the daemon and the demonstration.

mod arguments;
mod asking;
mod bulk;
mod check;
mod client;
mod context;
mod destinations;
mod enqueue;
mod escalations;
pub mod exit;
mod intents;
mod ledger;
mod manual;
mod output;
mod pauses;
mod producers;
mod quarantine;
mod story;
mod tokens;
mod verifying;

pub use arguments::{Cli, Command, Verify};
#[cfg(feature = "demo")]
pub use arguments::{Demo, DemoTool};
use context::Context;
use exit::{Exit, Failure};
pub use verifying::{agreed, producer_decides};

use crate::config::check::Level;

/// Reads the command line; prints help or a usage error and ends the process where clap says so.
pub fn parse() -> Cli {
    clap::Parser::parse()
}

impl Cli {
    /// The configuration file that is meant.
    pub fn config_path(&self) -> std::path::PathBuf {
        self.config.clone().unwrap_or_else(crate::config::load::default_path)
    }
}

/// Says an error and its causes on stderr.
pub fn complain(error: &anyhow::Error) {
    output::complain(error);
}

/// Puts a report on stdout and says how the process ends: 0, or 1 where something failed.
///
/// # Errors
/// When stdout cannot be written.
pub fn report(report: &crate::config::check::Report, json: bool) -> anyhow::Result<Exit> {
    check::print(output::Output { json }, report)?;
    Ok(match report.worst() {
        Level::Ok | Level::Warning => Exit::Ok,
        Level::Failed => Exit::Failed,
    })
}

/// Puts a result on stdout.
///
/// # Errors
/// When stdout cannot be written.
pub fn say(text: &str) -> anyhow::Result<()> {
    output::write_all(&format!("{text}\n"))
}

/// Runs a command that reads or writes the ledger or the files. `None`: it is for the daemon or the demonstration.
pub async fn run(cli: &Cli) -> Option<Exit> {
    let context = Context::new(cli);
    let result = match &cli.command {
        Command::Serve { .. } | Command::Doctor | Command::Openapi | Command::Verify(_) => return None,
        #[cfg(feature = "demo")]
        Command::Demo(_) | Command::Bench { .. } => return None,
        Command::Check => check::run(&context),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { directory } => manual::pages(directory),
        Command::Migrate => ledger::migrate(&context).await,
        Command::Show { intent, tenant } => intents::show(&context, intent, tenant.as_deref()).await,
        Command::List(list) => intents::list(&context, list).await,
        Command::Destinations(which) => destinations::run(&context, which).await,
        Command::Tokens(which) => tokens::run(&context, which).await,
        Command::Pause { scope, reason } => pauses::pause(&context, scope, reason).await,
        Command::Resume { scope } => pauses::resume(&context, scope).await,
        Command::Quarantine(which) => quarantine::run(&context, which).await,
        Command::Enqueue(asked) => enqueue::run(&context, asked).await,
        Command::Cancel { intent, reason, version, api } => {
            enqueue::cancel(&context, *intent, reason, *version, api).await
        }
        Command::Escalations(which) => escalations::run(&context, which).await,
        Command::Producers(which) => producers::run(&context, which).await,
    };
    Some(result.unwrap_or_else(|Failure { exit, error }| {
        output::complain(&error);
        exit
    }))
}
