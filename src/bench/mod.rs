//! `settled bench`: what one daemon does on this machine, as ratios to a bare yardstick measured in the same run.
//!
//! Absolute figures do not travel between machines; the flush rate of the disk is printed beside them. The load is bounded
//! in number and ends by itself; everything runs on loopback against a private Postgres.

mod daemon;
mod figures;
mod load;
mod sink;
mod yardstick;

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use self::{daemon::Bench, figures::Usage};
use crate::{
    demo::cluster::{Access, Cluster, Options},
    telemetry::bar::Bar,
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// Intents in the backlog.
    pub intents: u32,
    /// Sends at the same time.
    pub concurrency: u32,
    /// Intents a second in the latency part.
    pub rate: u32,
    /// Seconds of the latency part.
    pub seconds: u32,
    /// One JSON object instead of a table.
    pub json: bool,
}

/// The figures of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Flushes of one 8 kB write that the disk does in a second.
    pub fdatasync_per_second: f64,
    /// POSTs a second of a bare hyper loop, kept connections, same sink and concurrency.
    pub yardstick_kept_per_second: f64,
    /// The same with a connection for each POST, as the daemon sends.
    pub yardstick_fresh_per_second: f64,
    /// Bare inserts of the same bytes a second, 16 clients, one a transaction.
    pub bare_inserts_per_second: f64,
    /// `settled.enqueue` a second, 16 clients, one a transaction.
    pub enqueues_per_second: f64,
    /// … 500 a transaction, one client.
    pub bulk_enqueues_per_second: f64,
    /// Intents delivered from the backlog a second.
    pub deliveries_per_second: f64,
    /// To the yardstick with fresh connections.
    pub deliveries_to_yardstick: f64,
    /// CPU of the daemon for one delivery, microseconds.
    pub daemon_cpu_us: f64,
    /// CPU of Postgres for one delivery, microseconds.
    pub postgres_cpu_us: f64,
    /// WAL for one delivery after the enqueue, bytes.
    pub wal_bytes_per_delivery: f64,
    /// Largest memory of the daemon, MB.
    pub daemon_peak_mb: f64,
    /// From the start of the enqueue by SQL to the arrival, milliseconds.
    pub latency_p50_ms: f64,
    /// …
    pub latency_p99_ms: f64,
    /// References that arrived more than once.
    pub doubled: usize,
    /// References that never arrived.
    pub lost: usize,
}

/// Measures.
///
/// # Errors
/// When the private Postgres or the daemon cannot be started.
pub async fn run(arguments: &Arguments) -> anyhow::Result<Figures> {
    let bar = Bar::spinning("a Postgres of its own", arguments.json);
    let cluster = tokio::task::spawn_blocking(|| {
        Cluster::start(&Options { access: Access::Trust, keep: false }).context("start a private Postgres")
    })
    .await??;
    bar.says("yardsticks");
    let fdatasync = yardstick::fdatasync(cluster.directory())?;
    let sink = sink::Sink::start().await?;
    let kept = yardstick::posts(sink.address(), arguments.concurrency, true).await?;
    let fresh = yardstick::posts(sink.address(), arguments.concurrency, false).await?;
    sink.forget();
    let bench = Bench::build(&cluster, &sink, arguments.concurrency).await?;
    bar.says("enqueues");
    let bare = load::bare_inserts(&bench.pool).await?;
    let enqueues = load::enqueues(&bench.pool, &sink).await?;
    let bulk = load::backlog(&bench.pool, arguments.intents).await?;
    let wanted = enqueues.count + u64::from(arguments.intents);
    let before = Usage::of_postgres(&cluster)?;
    let wal = load::wal_position(&bench.pool).await?;
    let child = bench.start(&sink).await?;
    bar.says("deliveries");
    let drained = sink.drained(wanted, Duration::from_secs(300));
    let took = bar.follow(wanted, || sink.count(), drained).await;
    bench.settled(wanted, Duration::from_secs(60)).await?;
    let wal = load::wal_position(&bench.pool).await? - wal;
    let postgres = Usage::of_postgres(&cluster)?.cpu_seconds - before.cpu_seconds;
    let usage = Usage::of_process(child.id())?;
    let per_second = sink.count() as f64 / took.as_secs_f64();
    sink.forget_times();
    bar.says("latency");
    let latency = load::latency(&bench.pool, &sink, arguments.rate, arguments.seconds).await?;
    let peak = Usage::of_process(child.id())?.peak_mb;
    let per = |seconds: f64| seconds * 1e6 / wanted as f64;
    let figures = Figures {
        fdatasync_per_second: fdatasync,
        yardstick_kept_per_second: kept,
        yardstick_fresh_per_second: fresh,
        bare_inserts_per_second: bare,
        enqueues_per_second: enqueues.per_second,
        bulk_enqueues_per_second: bulk,
        deliveries_per_second: per_second,
        deliveries_to_yardstick: per_second / fresh,
        daemon_cpu_us: per(usage.cpu_seconds),
        postgres_cpu_us: per(postgres),
        wal_bytes_per_delivery: wal / wanted as f64,
        daemon_peak_mb: peak,
        latency_p50_ms: latency.percentile(0.50),
        latency_p99_ms: latency.percentile(0.99),
        doubled: sink.doubled(),
        lost: usize::try_from(wanted + latency.count).unwrap_or(0).saturating_sub(sink.distinct()),
    };
    bench.stop(child).await?;
    Ok(figures)
}

impl Figures {
    /// A table for people.
    pub fn table(&self) -> String {
        let rows = [
            ("fdatasync of the disk", format!("{:.0}/s", self.fdatasync_per_second)),
            ("yardstick: bare hyper POSTs, kept connections", format!("{:.0}/s", self.yardstick_kept_per_second)),
            ("yardstick: bare hyper POSTs, a connection each", format!("{:.0}/s", self.yardstick_fresh_per_second)),
            ("yardstick: bare inserts, 16 clients", format!("{:.0}/s", self.bare_inserts_per_second)),
            (
                "enqueue by SQL, one a transaction, 16 clients",
                format!(
                    "{:.0}/s = {:.2} of bare inserts",
                    self.enqueues_per_second,
                    self.enqueues_per_second / self.bare_inserts_per_second
                ),
            ),
            ("enqueue by SQL, 500 a transaction", format!("{:.0}/s", self.bulk_enqueues_per_second)),
            (
                "deliveries from the backlog",
                format!(
                    "{:.0}/s = {:.2} of a connection each, {:.2} of kept connections",
                    self.deliveries_per_second,
                    self.deliveries_to_yardstick,
                    self.deliveries_per_second / self.yardstick_kept_per_second
                ),
            ),
            (
                "CPU for one delivery",
                format!("{:.0} us daemon + {:.0} us Postgres", self.daemon_cpu_us, self.postgres_cpu_us),
            ),
            ("WAL for one delivery after the enqueue", format!("{:.0} B", self.wal_bytes_per_delivery)),
            ("peak memory of the daemon", format!("{:.1} MB", self.daemon_peak_mb)),
            (
                "enqueue by SQL to arrival",
                format!("p50 {:.1} ms, p99 {:.1} ms", self.latency_p50_ms, self.latency_p99_ms),
            ),
        ];
        let mut table = rows.iter().map(|(what, figure)| format!("{what:<48} {figure}\n")).collect::<String>();
        table.push_str(&format!("lost={} doubled={}", self.lost, self.doubled));
        table
    }
}
