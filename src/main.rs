//! The one binary. Parses, then hands over; nothing else happens here.

use std::{process::ExitCode, sync::Arc};

use settled::{
    cli::{
        self, Command,
        exit::{Exit, Failure},
    },
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
    #[cfg(feature = "demo")]
    if let Command::Demo(demo) = &cli.command {
        return play(demo).await;
    }
    let Command::Serve { migrate } = &cli.command else { return Exit::Usage.into() };
    match serve(&cli, *migrate).await {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            let failure = Failure::from(error);
            cli::complain(&failure.error);
            failure.exit.into()
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

#[cfg(feature = "demo")]
async fn play(demo: &cli::Demo) -> ExitCode {
    use settled::demo::{
        self,
        cluster::{ClusterError, hold::hold_postgres_for},
    };
    let code = match &demo.tool {
        Some(cli::DemoTool::WithPostgres { command }) => hold_postgres_for(command.clone()).await,
        None => demo::run(demo::Arguments { once: demo.once, keep: demo.keep }).await,
    };
    match code {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            cli::complain(&error);
            let missing = matches!(error.downcast_ref(), Some(ClusterError::Missing { .. }));
            if missing { Exit::Unavailable.into() } else { Exit::Failed.into() }
        }
    }
}
