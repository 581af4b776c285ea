//! The one binary. Parses, then hands over; nothing else happens here.

use std::{process::ExitCode, sync::Arc};

use settled::{
    cli::{self, Command, exit::Exit},
    clock::SystemClock,
    config, daemon,
    lifecycle::Shutdown,
    telemetry,
};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = cli::parse();
    if let Some(exit) = cli::run(&cli).await {
        return exit.into();
    }
    let result = match &cli.command {
        Command::Serve { migrate } => serve(&cli, *migrate).await,
        _ => Ok(()),
    };
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            cli::complain(&error);
            Exit::Failed.into()
        }
    }
}

async fn serve(cli: &cli::Cli, migrate: bool) -> anyhow::Result<()> {
    let settings = config::load(&cli.config_path())?;
    telemetry::init(&settings.telemetry)?;
    let shutdown = Shutdown::new();
    let _signals = shutdown.on_signals()?;
    daemon::run(settings, migrate, Arc::new(SystemClock), shutdown).await
}
