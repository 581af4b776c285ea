//! `--storm`: half of the sends fail while everything is asked for by twenty callers.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{
    Arguments, ORDINARY,
    daemon::{Bench, Plan},
    fault::Shares,
    load,
    sink::Sink,
};
use crate::{demo::cluster::Cluster, store, telemetry::bar::Bar};

/// Callers that ask for the same effect.
const REPEATERS: u32 = 20;
/// Share of the sends that fail; each reference at most twice.
const FAILS: f64 = 0.5;

/// What became of it.
#[derive(Debug, Clone, Serialize)]
pub struct Storm {
    /// Effects that were asked for.
    pub effects: u32,
    /// Calls that asked for each.
    pub repeaters: u32,
    /// Sends that failed.
    pub failed_sends: u64,
    /// Calls a second.
    pub calls_per_second: f64,
    /// 99 of 100 calls took at most so long while nothing was sent, milliseconds; 16 clients.
    pub quiet_p99_ms: f64,
    /// In the storm.
    pub storm_p99_ms: f64,
    /// The one to the other.
    pub to_quiet: f64,
    /// References that arrived more than once.
    pub doubled: usize,
    /// References that never arrived.
    pub lost: usize,
    /// Intents that wait for a person.
    pub left_to_a_person: u64,
    /// Until everything had its end, seconds.
    pub seconds: f64,
}

pub(super) async fn run(cluster: &Cluster, sink: &Sink, arguments: &Arguments, bar: &Bar) -> anyhow::Result<Storm> {
    let effects = (arguments.intents / REPEATERS).max(1);
    let bench = Bench::build(cluster, Plan::faulty(sink, ORDINARY, arguments.intents)).await?;
    store::bench::tune(&bench.pool).await?;
    let hook = Plan::hook(ORDINARY);
    bar.says("a quiet time");
    let quiet = load::enqueues(&bench.pool, &hook, "quiet", arguments.lasting()).await?;
    super::clear(&bench, sink).await?;
    let shares = Shares { failed: FAILS, ..Shares::default() };
    sink.fails(shares);
    bar.says("the storm");
    let mut running = bench.ready().await?;
    let began = Instant::now();
    let _in_use = load::trickle(&bench.pool, &hook);
    let storm = load::repeats(&bench.pool, &hook, effects, REPEATERS).await?;
    while store::bench::without_end(&bench.pool).await? > 0 && began.elapsed() < Duration::from_secs(180) {
        running.check()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    running.stop().await?;
    let told = store::bench::doubts(&bench.pool).await?;
    let (quiet_p99_ms, storm_p99_ms) = (quiet.times.percentile(0.99), storm.times.percentile(0.99));
    Ok(Storm {
        effects,
        repeaters: REPEATERS,
        failed_sends: sink.met(super::fault::Fate::Failed),
        calls_per_second: storm.per_second,
        quiet_p99_ms,
        storm_p99_ms,
        to_quiet: storm_p99_ms / quiet_p99_ms,
        doubled: sink.doubled(),
        lost: (effects as usize).saturating_sub(sink.distinct()),
        left_to_a_person: u64::try_from(told.left_to_a_person).unwrap_or(0),
        seconds: began.elapsed().as_secs_f64(),
    })
}
