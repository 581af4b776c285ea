//! The one binary. Parses, then hands over; nothing else happens here.

use std::process::ExitCode;

use settled::cli::{self, Command, exit::Exit};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = cli::parse();
    if let Some(exit) = cli::run(&cli).await {
        return exit.into();
    }
    match cli.command {
        _ => Exit::Failed.into(),
    }
}
