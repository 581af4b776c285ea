//! The command line: data on stdout, words on stderr, `--json` everywhere, exit codes from [`exit`].
//!
//! This module only parses into a [`Command`] and runs the commands that read or write the ledger. `main.rs` alone knows
//! the daemon and the demonstration.

mod arguments;
mod check;
pub mod exit;
mod output;

pub use arguments::{Cli, Command};
use exit::{Exit, Failure};
use output::Output;

use crate::config::{self, ConfigErrors, Settings};

/// Reads the command line; prints help or a usage error and ends the process where clap says so.
pub fn parse() -> Cli {
    clap::Parser::parse()
}

/// What every command may need.
struct Context {
    cli_config: Option<std::path::PathBuf>,
    out: Output,
}

impl Context {
    fn config_path(&self) -> std::path::PathBuf {
        self.cli_config.clone().unwrap_or_else(config::load::default_path)
    }

    fn settings(&self) -> Result<Settings, ConfigErrors> {
        config::load(&self.config_path())
    }
}

/// Runs a command that reads or writes the ledger or the files. `None`: it is for the daemon or the demonstration.
pub async fn run(cli: &Cli) -> Option<Exit> {
    let context = Context { cli_config: cli.config.clone(), out: Output { json: cli.json } };
    let result = match &cli.command {
        Command::Check => check::run(&context),
        Command::Serve { .. } | Command::Demo(_) => return None,
        _ => todo!(),
    };
    Some(result.unwrap_or_else(|Failure { exit, error }| {
        output::complain(&error);
        exit
    }))
}
