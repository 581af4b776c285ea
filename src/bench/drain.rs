//! A backlog, sent by a daemon that was just started.

use std::time::Duration;

use serde::Serialize;

use super::{
    daemon::{Bench, Plan},
    load,
    sink::Sink,
    usage::Usage,
    yardstick,
};
use crate::{demo::cluster::Cluster, store, telemetry::bar::Bar};

/// How a backlog is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) concurrency: u32,
    /// How long its yardsticks are measured.
    pub(super) lasting: Duration,
    /// The backlog is older than the last checkpoint, so each page is logged whole once more.
    pub(super) after_checkpoint: bool,
}

/// What one drain did.
#[derive(Debug, Clone, Serialize)]
pub struct Drain {
    /// Sends at the same time.
    pub concurrency: u32,
    /// Intents in the backlog.
    pub intents: u32,
    /// POSTs a second of a bare hyper loop over kept connections, same sink and concurrency.
    pub kept_per_second: f64,
    /// The same with a connection for each POST.
    pub fresh_per_second: f64,
    /// Deliveries a second, from the first arrival to the last.
    pub per_second: f64,
    /// To the bare loop over kept connections.
    pub to_kept: f64,
    /// To the bare loop with a connection each.
    pub to_fresh: f64,
    /// CPU of the daemon for a delivery, microseconds; CPU seconds for 1,000 are a thousandth of it. Its start is in it.
    pub daemon_cpu_us: f64,
    /// CPU of Postgres for a delivery, microseconds.
    pub postgres_cpu_us: f64,
    /// Bytes of WAL for a delivery, after the enqueue.
    pub wal_bytes: f64,
    /// Bytes of WAL for its enqueue.
    pub enqueue_wal_bytes: f64,
    /// Bytes that the tables and indexes grew by, for a settled intent.
    pub table_bytes: f64,
    /// Largest memory of the daemon, MB.
    pub daemon_peak_mb: f64,
    /// References that arrived more than once.
    pub doubled: usize,
    /// References that never arrived.
    pub lost: usize,
}

/// How many intents tell the rate of so many sends at the same time.
pub(super) fn share(intents: u32, concurrency: u32) -> u32 {
    if concurrency < 16 { (intents / 10).max(1) } else { intents }
}

/// Enqueues, starts the daemon, and waits until everything has arrived and is recorded.
pub(super) async fn run(
    cluster: &Cluster,
    bench: &Bench,
    sink: &Sink,
    intents: u32,
    way: Way,
    bar: &Bar,
) -> anyhow::Result<Drain> {
    let (pool, concurrency, hook) = (&bench.pool, way.concurrency, Plan::hook(way.concurrency));
    bar.says(format!("yardstick, {concurrency} at once"));
    let kept = yardstick::posts(sink.address(), concurrency, true, way.lasting / 2).await?;
    let fresh = yardstick::posts(sink.address(), concurrency, false, way.lasting / 2).await?;
    let (rows, before_enqueue) = (store::bench::table_bytes(pool).await?, store::bench::wal_position(pool).await?);
    let name = format!("drain-{:08x}", rand::random::<u32>());
    load::backlog(pool, &hook, &name, intents).await?;
    let enqueue_wal = store::bench::wal_position(pool).await? - before_enqueue;
    if way.after_checkpoint {
        store::bench::checkpoint(pool).await?;
    }
    sink.forget();
    let before = store::bench::sent(pool).await?;
    let (postgres, wal) = (Usage::of_postgres(cluster)?, store::bench::wal_position(pool).await?);
    let running = bench.start()?;
    bar.says(format!("deliveries, {concurrency} at once"));
    let wanted = u64::from(intents);
    bar.follow(wanted, || sink.count(), sink.drained(wanted, Duration::from_secs(300))).await;
    bench.settled(before, intents, Duration::from_secs(60)).await?;
    let usage = running.usage()?;
    let postgres = Usage::of_postgres(cluster)?.cpu_seconds - postgres.cpu_seconds;
    let wal = store::bench::wal_position(pool).await? - wal;
    running.stop().await?;
    let per = |all: f64| all / f64::from(intents.max(1));
    let per_second = f64::from(intents) / sink.span().as_secs_f64();
    Ok(Drain {
        concurrency,
        intents,
        kept_per_second: kept,
        fresh_per_second: fresh,
        per_second,
        to_kept: per_second / kept,
        to_fresh: per_second / fresh,
        daemon_cpu_us: per(usage.cpu_seconds * 1e6),
        postgres_cpu_us: per(postgres * 1e6),
        wal_bytes: per(wal),
        enqueue_wal_bytes: per(enqueue_wal),
        table_bytes: per(store::bench::table_bytes(pool).await? - rows),
        daemon_peak_mb: usage.peak_mb,
        doubled: sink.doubled(),
        lost: (intents as usize).saturating_sub(sink.distinct()),
    })
}
