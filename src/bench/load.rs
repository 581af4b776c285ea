//! Producers: bare inserts, enqueues one by one and in bulk, a steady rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::PgPool;
use tokio::{sync::Mutex, task::JoinSet};

use super::sink::Sink;
use crate::store;

const FOR: Duration = Duration::from_secs(3);
const CLIENTS: u64 = 16;

/// How many, how fast.
pub(super) struct Rate {
    pub(super) count: u64,
    pub(super) per_second: f64,
}

/// Measured times, milliseconds.
pub(super) struct Times {
    sorted: Vec<f64>,
    pub(super) count: u64,
}

impl Times {
    pub(super) fn percentile(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.sorted.get(at.min(last)).copied().unwrap_or(f64::NAN)
    }
}

/// Inserts of the bytes of a request into a table with a key, one a transaction.
pub(super) async fn bare_inserts(pool: &PgPool) -> anyhow::Result<f64> {
    store::bench::bare_table(pool).await?;
    Ok(several(pool, |pool, n| async move { store::bench::bare_insert(&pool, n).await }).await?.per_second)
}

/// `settled.enqueue`, one a transaction.
pub(super) async fn enqueues(pool: &PgPool, _sink: &Sink) -> anyhow::Result<Rate> {
    several(pool, |pool, n| async move { store::bench::enqueue(&pool, &format!("one-{n}")).await }).await
}

async fn several<F, T>(pool: &PgPool, act: F) -> anyhow::Result<Rate>
where
    F: Fn(PgPool, i64) -> T + Clone + Send + 'static,
    T: Future<Output = Result<(), sqlx::Error>> + Send + 'static,
{
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (pool, next, act) = (pool.clone(), Arc::clone(&next), act.clone());
        clients.spawn(async move {
            while began.elapsed() < FOR {
                let n = next.fetch_add(1, Ordering::Relaxed);
                act(pool.clone(), i64::try_from(n).unwrap_or(i64::MAX)).await?;
            }
            Ok::<(), sqlx::Error>(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let count = next.load(Ordering::Relaxed);
    Ok(Rate { count, per_second: count as f64 / began.elapsed().as_secs_f64() })
}

/// A backlog, 500 a transaction; the rate.
pub(super) async fn backlog(pool: &PgPool, intents: u32) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut from = 0;
    while from < intents {
        let upto = (from + 500).min(intents);
        store::bench::enqueue_range(pool, i64::from(from), i64::from(upto)).await?;
        from = upto;
    }
    let rate = f64::from(intents) / began.elapsed().as_secs_f64();
    // A backlog of real life has been analyzed by the time it is that long.
    store::bench::analyze(pool).await?;
    Ok(rate)
}

/// Bytes of WAL written so far.
pub(super) async fn wal_position(pool: &PgPool) -> anyhow::Result<f64> {
    Ok(store::bench::wal_position(pool).await?)
}

/// Enqueues at a steady rate and waits for each to arrive.
pub(super) async fn latency(pool: &PgPool, sink: &Sink, rate: u32, seconds: u32) -> anyhow::Result<Times> {
    let count = rate * seconds;
    let started = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    let mut calls = JoinSet::new();
    for n in 0..count {
        ticks.tick().await;
        let (pool, started) = (pool.clone(), Arc::clone(&started));
        calls.spawn(async move {
            let reference = format!("steady-{n}");
            let began = Instant::now();
            store::bench::enqueue(&pool, &reference).await?;
            started.lock().await.push((reference, began));
            Ok::<(), sqlx::Error>(())
        });
    }
    while let Some(done) = calls.join_next().await {
        done??;
    }
    let started = started.lock().await;
    let patience = Instant::now();
    while started.iter().any(|(reference, _)| sink.arrival(reference).is_none()) && patience.elapsed().as_secs() < 30 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut sorted: Vec<f64> = started
        .iter()
        .filter_map(|(reference, began)| Some(sink.arrival(reference)?.duration_since(*began).as_secs_f64() * 1000.0))
        .collect();
    sorted.sort_by(f64::total_cmp);
    Ok(Times { sorted, count: u64::from(count) })
}
