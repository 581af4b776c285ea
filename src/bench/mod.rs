//! `settled bench`: what one daemon does on this machine, as ratios to bare yardsticks measured in the same run.
//!
//! Absolute figures do not travel between machines; the flush rate of the disk is printed beside them. The load is bounded
//! in number and time and ends by itself; everything runs on loopback against a private Postgres.

mod daemon;
mod drain;
pub mod fault;
mod figures;
mod load;
mod mail;
mod rows;
mod sink;
mod storm;
mod usage;
mod yardstick;

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

pub use self::figures::Figures;
use self::{
    daemon::{Bench, Plan},
    figures::{Enqueued, Latency, Machine},
    sink::Sink,
    usage::Usage,
};
use crate::{
    demo::cluster::{Access, Cluster, Options},
    store,
    telemetry::bar::Bar,
};

/// Sends at the same time in the parts that have one number of them.
const ORDINARY: u32 = 64;
/// Connections to the relay.
const CONNECTIONS: [u32; 2] = [1, 16];
/// A run with fewer intents than this is a trial of the commands, and its yardsticks take less time.
const WHOLE: u32 = 2_000;

/// What to measure. The last five choose one part; without them everything else is measured.
#[derive(Debug, Clone, Default)]
pub struct Arguments {
    /// Intents in the backlog.
    pub intents: u32,
    /// Sends at the same time, one drain each.
    pub concurrency: Vec<u32>,
    /// Intents a second in the latency part.
    pub rate: u32,
    /// Seconds of each latency part.
    pub seconds: u32,
    /// Shares of the sends that go wrong.
    pub fault: Option<fault::Shares>,
    /// Settled rows that are there already.
    pub rows: Option<u32>,
    /// Half of the sends fail, and everything is asked for twenty times.
    pub storm: bool,
    /// Rows that are due: what the daemon's memory does.
    pub backlog: Option<u32>,
    /// One JSON object instead of a table.
    pub json: bool,
}

impl Arguments {
    /// How long a yardstick is measured.
    fn lasting(&self) -> Duration {
        Duration::from_millis(if self.intents < WHOLE { 200 } else { 2000 })
    }
}

/// Measures. A signal ends it in order: the private Postgres is stopped and removed.
///
/// # Errors
/// When the private Postgres or the daemon cannot be started, or the daemon ends.
pub async fn run(arguments: &Arguments) -> anyhow::Result<Figures> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        figures = measure(arguments) => figures,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}

async fn measure(arguments: &Arguments) -> anyhow::Result<Figures> {
    let bar = Bar::spinning("a Postgres of its own", arguments.json);
    let cluster = tokio::task::spawn_blocking(|| {
        Cluster::start(&Options { access: Access::Trust, keep: false }).context("start a private Postgres")
    })
    .await??;
    let sink = Sink::start().await?;
    let machine = Machine {
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        fdatasync_per_second: yardstick::fdatasync(cluster.directory(), arguments.lasting())?,
    };
    let mut figures = Figures::of(machine);
    if let Some(shares) = arguments.fault {
        figures.fault = Some(fault::run(&cluster, &sink, arguments.intents, shares, &bar).await?);
    } else if let Some(rows) = arguments.rows {
        figures.rows = Some(rows::among(&cluster, &sink, arguments, rows, &bar).await?);
    } else if arguments.storm {
        figures.storm = Some(storm::run(&cluster, &sink, arguments, &bar).await?);
    } else if let Some(rows) = arguments.backlog {
        figures.backlog = Some(rows::backlog(&cluster, &sink, arguments, rows, &bar).await?);
    } else {
        whole(&cluster, &sink, arguments, &mut figures, &bar).await?;
    }
    Ok(figures)
}

async fn whole(
    cluster: &Cluster,
    sink: &Sink,
    arguments: &Arguments,
    figures: &mut Figures,
    bar: &Bar,
) -> anyhow::Result<()> {
    let relay = mail::Relay::start().await?;
    let mut concurrencies = arguments.concurrency.clone();
    if !concurrencies.contains(&ORDINARY) {
        concurrencies.push(ORDINARY);
    }
    let plan = Plan::hooks(sink, &concurrencies).with_mail(&relay, &CONNECTIONS);
    let bench = Bench::build(cluster, plan).await?;
    store::bench::tune(&bench.pool).await?;
    bar.says("enqueues");
    figures.enqueue = Some(enqueue(&bench, arguments).await?);
    clear(&bench, sink).await?;
    for concurrency in &arguments.concurrency {
        let way = drain::Way { concurrency: *concurrency, lasting: arguments.lasting(), after_checkpoint: false };
        let count = drain::share(arguments.intents, *concurrency);
        figures.drains.push(drain::run(cluster, &bench, sink, count, way, bar).await?);
    }
    let way = drain::Way { concurrency: ORDINARY, lasting: arguments.lasting(), after_checkpoint: true };
    figures.after_checkpoint = Some(drain::run(cluster, &bench, sink, arguments.intents, way, bar).await?);
    let (idle, latency) = latency(cluster, &bench, sink, arguments, bar).await?;
    (figures.idle_cpu_share, figures.latency) = (Some(idle), latency);
    for connections in CONNECTIONS {
        let mails = (arguments.intents / 4).min(connections * 2_000).max(10);
        figures.mail.push(mail::drain(&bench, &relay, (connections, mails), arguments.lasting(), bar).await?);
    }
    Ok(())
}

/// Producers alone, beside bare inserts of the same bytes.
async fn enqueue(bench: &Bench, arguments: &Arguments) -> anyhow::Result<Enqueued> {
    let (pool, lasting, hook) = (&bench.pool, arguments.lasting(), Plan::hook(ORDINARY));
    let bare = load::bare_inserts(pool, lasting).await?;
    let bare_bulk = load::bare_bulk(pool, lasting).await?;
    let single = load::enqueues(pool, &hook, "single", lasting).await?;
    let bulk = load::backlog(pool, &hook, "bulk", arguments.intents).await?;
    Ok(Enqueued {
        bare_per_second: bare.per_second,
        single_per_second: single.per_second,
        single_to_bare: single.per_second / bare.per_second,
        single_p99_ms: single.times.percentile(0.99),
        bare_bulk_per_second: bare_bulk,
        bulk_per_second: bulk,
        bulk_to_bare: bulk / bare_bulk,
    })
}

/// Sends what the producers left.
async fn clear(bench: &Bench, sink: &Sink) -> anyhow::Result<()> {
    let mut running = bench.start()?;
    let began = std::time::Instant::now();
    while store::bench::unsent(&bench.pool).await? > 0 {
        running.check()?;
        anyhow::ensure!(began.elapsed() < Duration::from_secs(300), "the backlog was not sent in five minutes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.stop().await?;
    sink.forget();
    Ok(())
}

/// An idle daemon, and then a steady rate by SQL and by HTTP.
async fn latency(
    cluster: &Cluster,
    bench: &Bench,
    sink: &Sink,
    arguments: &Arguments,
    bar: &Bar,
) -> anyhow::Result<(f64, Vec<Latency>)> {
    bar.says("latency");
    sink.forget();
    let running = bench.ready().await?;
    let cpu =
        |running: &daemon::Running| anyhow::Ok(running.usage()?.cpu_seconds + Usage::of_postgres(cluster)?.cpu_seconds);
    let lasting = arguments.lasting() * 2;
    // The caches of a new session are filled by what comes first.
    tokio::time::sleep(lasting / 4).await;
    let before = cpu(&running)?;
    tokio::time::sleep(lasting).await;
    let idle = (cpu(&running)? - before) / lasting.as_secs_f64();
    let seconds = Duration::from_secs(u64::from(arguments.seconds));
    let callers = load::Callers::new(bench.api, &bench.token);
    let mut all = Vec::new();
    for (by, ways) in [("sql", load::By::Sql(bench.pool.clone())), ("http", load::By::Http(callers))] {
        sink.forget();
        let before = cpu(&running)?;
        let (times, wanted) = load::latency(&ways, &Plan::hook(ORDINARY), sink, arguments.rate, seconds).await?;
        let used = cpu(&running)? - before;
        all.push(Latency {
            by,
            per_second: arguments.rate,
            p50_ms: times.percentile(0.50),
            p99_ms: times.percentile(0.99),
            cpu_us: used * 1e6 / f64::from(wanted.max(1)),
            lost: (wanted as usize).saturating_sub(times.count()),
            doubled: sink.doubled(),
        });
    }
    running.stop().await?;
    Ok((idle, all))
}
