//! Many rows: settled ones that stand around, and due ones that wait.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{
    Arguments, ORDINARY,
    daemon::{Bench, Plan},
    drain::{self, Drain, Way},
    load,
    sink::Sink,
};
use crate::{demo::cluster::Cluster, store, telemetry::bar::Bar};

/// Rows of one statement that fills.
const CHUNK: u32 = 100_000;

/// The same work in an empty ledger and among settled rows.
#[derive(Debug, Clone, Serialize)]
pub struct Among {
    /// Settled rows.
    pub rows: u32,
    /// Seconds that filling took.
    pub fill_seconds: f64,
    /// Enqueues a second in the empty ledger, 16 clients.
    pub enqueues_empty: f64,
    /// Among the rows.
    pub enqueues_among: f64,
    /// The one to the other.
    pub enqueue_ratio: f64,
    /// A drain of the empty ledger.
    pub empty: Drain,
    /// Among the rows.
    pub among: Drain,
    /// Deliveries a second, the one to the other.
    pub delivery_ratio: f64,
}

/// A backlog that a daemon works on for a while.
#[derive(Debug, Clone, Serialize)]
pub struct Backlog {
    /// Rows that were due.
    pub rows: u32,
    /// Seconds that filling took.
    pub fill_seconds: f64,
    /// Seconds that the daemon worked.
    pub seconds: f64,
    /// What arrived a second.
    pub per_second: f64,
    /// Largest memory of the daemon, MB.
    pub daemon_peak_mb: f64,
    /// References that arrived more than once.
    pub doubled: usize,
}

async fn fill(bench: &Bench, rows: u32, settled: bool, bar: &Bar) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut there = 0;
    while there < rows {
        bar.says(format!("{there} of {rows} rows"));
        let upto = (there + CHUNK).min(rows);
        store::bench::fill(&bench.pool, &Plan::hook(ORDINARY), i64::from(there) + 1..i64::from(upto) + 1, settled)
            .await?;
        there = upto;
    }
    store::bench::analyze(&bench.pool).await?;
    store::bench::checkpoint(&bench.pool).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// Enqueues and sends in the empty ledger, fills it, and does the same again.
pub(super) async fn among(
    cluster: &Cluster,
    sink: &Sink,
    arguments: &Arguments,
    rows: u32,
    bar: &Bar,
) -> anyhow::Result<Among> {
    let bench = Bench::build(cluster, Plan::hooks(sink, &[ORDINARY])).await?;
    store::bench::tune(&bench.pool).await?;
    let (hook, lasting) = (Plan::hook(ORDINARY), arguments.lasting());
    let way = Way { concurrency: ORDINARY, lasting, after_checkpoint: false };
    // Once for the caches of both.
    load::enqueues(&bench.pool, &hook, "warm", lasting / 4).await?;
    let enqueues_empty = load::enqueues(&bench.pool, &hook, "empty", lasting).await?.per_second;
    super::clear(&bench, sink).await?;
    let empty = drain::run(cluster, &bench, sink, arguments.intents, way, bar).await?;
    let fill_seconds = fill(&bench, rows, true, bar).await?;
    load::enqueues(&bench.pool, &hook, "warm-again", lasting / 4).await?;
    let enqueues_among = load::enqueues(&bench.pool, &hook, "among", lasting).await?.per_second;
    super::clear(&bench, sink).await?;
    let among = drain::run(cluster, &bench, sink, arguments.intents, way, bar).await?;
    Ok(Among {
        rows,
        fill_seconds,
        enqueues_empty,
        enqueues_among,
        enqueue_ratio: enqueues_among / enqueues_empty,
        delivery_ratio: among.per_second / empty.per_second,
        empty,
        among,
    })
}

/// Fills the queue and lets the daemon work for the given seconds.
pub(super) async fn backlog(
    cluster: &Cluster,
    sink: &Sink,
    arguments: &Arguments,
    rows: u32,
    bar: &Bar,
) -> anyhow::Result<Backlog> {
    let bench = Bench::build(cluster, Plan::hooks(sink, &[ORDINARY])).await?;
    store::bench::tune(&bench.pool).await?;
    let fill_seconds = fill(&bench, rows, false, bar).await?;
    let mut running = bench.start()?;
    let lasting = Duration::from_secs(u64::from(arguments.seconds));
    bar.follow(u64::from(rows), || sink.count(), sink.drained(u64::from(rows), lasting)).await;
    running.check()?;
    let usage = running.usage()?;
    running.stop().await?;
    let span = sink.span().as_secs_f64();
    Ok(Backlog {
        rows,
        fill_seconds,
        seconds: span,
        per_second: sink.count() as f64 / span,
        daemon_peak_mb: usage.peak_mb,
        doubled: sink.doubled(),
    })
}
