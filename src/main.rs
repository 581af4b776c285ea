//! The one binary. Parses, then hands over; nothing else happens here.

use std::{process::ExitCode, sync::Arc};

use secrecy::ExposeSecret;
#[cfg(feature = "demo")]
use settled::bench;
use settled::{
    api,
    cli::{
        self, Command,
        exit::{Exit, Failure},
    },
    clock::SystemClock,
    config, daemon, doctor,
    lifecycle::Shutdown,
    telemetry, verify,
};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = cli::parse();
    if let Some(exit) = cli::run(&cli).await {
        return exit.into();
    }
    let result = match &cli.command {
        Command::Serve { migrate } => serve(&cli, *migrate).await,
        Command::Doctor => return ended(examine(&cli).await),
        Command::Verify(verify) => return verified(&cli, verify).await,
        Command::Openapi => api::openapi::document().map_err(anyhow::Error::msg).and_then(cli::say),
        #[cfg(feature = "demo")]
        Command::Demo(demo) => return play(demo).await,
        #[cfg(feature = "demo")]
        Command::Bench { intents, concurrency, rate, seconds, fault, rows, storm, backlog } => {
            let fault = match fault.as_deref().map(str::parse::<bench::fault::Shares>).transpose() {
                Ok(fault) => fault,
                Err(error) => {
                    cli::complain(&anyhow::anyhow!("--fault: {error}"));
                    return Exit::Usage.into();
                }
            };
            let arguments = bench::Arguments {
                intents: *intents,
                concurrency: concurrency.clone(),
                rate: *rate,
                seconds: *seconds,
                fault,
                rows: *rows,
                storm: *storm,
                backlog: *backlog,
                json: cli.json,
            };
            measure(arguments).await
        }
        // `cli::run` has taken every other command.
        _ => return Exit::Usage.into(),
    };
    ended(result.map(|()| Exit::Ok))
}

fn ended(result: anyhow::Result<Exit>) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            let failure = Failure::from(error);
            cli::complain(&failure.error);
            failure.exit.into()
        }
    }
}

async fn examine(cli: &cli::Cli) -> anyhow::Result<Exit> {
    let mut settings = config::load(&cli.config_path())?;
    if let Some(url) = &cli.database_url {
        settings.database.use_url(url);
    }
    let url = settings.database.url()?;
    cli::report(&doctor::run(&settings, url.expose_secret()).await, cli.json)
}

async fn verified(cli: &cli::Cli, verify: &cli::Verify) -> ExitCode {
    match prove(cli, verify).await {
        Ok(exit) => exit.into(),
        Err(failure) => {
            cli::complain(&failure.error);
            failure.exit.into()
        }
    }
}

async fn prove(cli: &cli::Cli, asked: &cli::Verify) -> Result<Exit, Failure> {
    let mut settings = config::load(&cli.config_path())?;
    if let Some(url) = &cli.database_url {
        settings.database.use_url(url);
    }
    let url = settings.database.url()?;
    let mut arguments = verify::Arguments {
        destinations: asked.destinations.clone(),
        all: asked.all,
        ledger_only: asked.ledger_only,
        wait: asked.wait,
        producer_decides: None,
    };
    let plan =
        verify::plan(&settings, &arguments).map_err(|unknown| Failure::new(Exit::NotFound, unknown.to_string()))?;
    cli::agreed(asked, &plan)?;
    arguments.producer_decides = cli::producer_decides(asked).await?;
    let shutdown = Shutdown::new();
    let _signals = shutdown.on_signals()?;
    let (stop, stopping) = (CancellationToken::new(), shutdown.stopping());
    let ended = stop.clone();
    tokio::spawn(async move {
        stopping.await;
        ended.cancel();
    });
    let findings = verify::run(&settings, url.expose_secret(), &arguments, stop).await?;
    let exit = cli::report(&findings.report, cli.json)?;
    let sum = if cli.json { serde_json::to_string(&findings.sum)? } else { findings.sum.to_string() };
    cli::say(&sum)?;
    Ok(exit)
}

async fn serve(cli: &cli::Cli, migrate: bool) -> anyhow::Result<()> {
    let mut settings = config::load(&cli.config_path())?;
    if let Some(url) = &cli.database_url {
        settings.database.use_url(url);
    }
    telemetry::init(&settings.telemetry)?;
    let shutdown = Shutdown::new();
    let _signals = shutdown.on_signals()?;
    daemon::run(settings, migrate, Arc::new(SystemClock), shutdown).await
}

#[cfg(feature = "demo")]
async fn measure(arguments: bench::Arguments) -> anyhow::Result<()> {
    let figures = bench::run(&arguments).await?;
    let text = if arguments.json { serde_json::to_string(&figures)? } else { figures.table() };
    cli::say(&text)
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
