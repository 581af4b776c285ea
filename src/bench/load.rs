//! Producers: bare inserts, enqueues one by one and in bulk, a steady rate by SQL or HTTP.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use sqlx::PgPool;
use tokio::{sync::Mutex, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

use super::{sink::Sink, yardstick};
use crate::store;

/// Producers at the same time.
const CLIENTS: u64 = 16;
/// Intents of one bulk call.
pub(super) const BULK: u32 = 500;

/// How many, how fast, how long each took.
pub(super) struct Rate {
    pub(super) per_second: f64,
    pub(super) times: Times,
}

/// Measured times, milliseconds.
pub(super) struct Times {
    sorted: Vec<f64>,
}

impl Times {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { sorted: times }
    }

    pub(super) fn percentile(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.sorted.get(at.min(last)).copied().unwrap_or(0.0)
    }

    pub(super) fn count(&self) -> usize {
        self.sorted.len()
    }
}

/// Inserts of the bytes of a request into a table with a key, one a transaction.
pub(super) async fn bare_inserts(pool: &PgPool, lasting: Duration) -> anyhow::Result<Rate> {
    store::bench::bare_table(pool).await?;
    several(pool, Until::Time(lasting), |pool, n| async move { store::bench::bare_insert(&pool, n).await }).await
}

/// The same bytes, as many a statement as a bulk call has.
pub(super) async fn bare_bulk(pool: &PgPool, lasting: Duration) -> anyhow::Result<f64> {
    let (began, mut rows) = (Instant::now(), 0_u32);
    while began.elapsed() < lasting {
        store::bench::bare_inserts(pool, i64::from(rows), BULK).await?;
        rows += BULK;
    }
    Ok(f64::from(rows) / began.elapsed().as_secs_f64())
}

/// `settled.enqueue`, one a transaction, each another reference.
pub(super) async fn enqueues(pool: &PgPool, hook: &str, name: &str, lasting: Duration) -> anyhow::Result<Rate> {
    let (hook, name) = (hook.to_owned(), name.to_owned());
    let act = move |pool: PgPool, n: i64| {
        let (hook, reference) = (hook.clone(), format!("{name}-{n}"));
        async move { store::bench::enqueue(&pool, &hook, &reference, &reference).await }
    };
    several(pool, Until::Time(lasting), act).await
}

/// `settled.enqueue`, each reference asked for by so many callers, each in a run of its own.
pub(super) async fn repeats(pool: &PgPool, hook: &str, references: u32, repeaters: u32) -> anyhow::Result<Rate> {
    let hook = hook.to_owned();
    let act = move |pool: PgPool, n: i64| {
        let reference = format!("storm-{}", n / i64::from(repeaters));
        let (hook, run) = (hook.clone(), format!("run-{n}"));
        async move { store::bench::enqueue(&pool, &hook, &reference, &run).await }
    };
    several(pool, Until::Count(u64::from(references) * u64::from(repeaters)), act).await
}

/// Before the name of what [`trickle`] sends.
pub(super) const TRICKLE: &str = "trickle-";

/// A few ordinary sends a second while it lives, as a destination in use has them: absence is proven beside what was sent
/// after the doubt. The receiver lets them through and does not count them.
pub(super) fn trickle(pool: &PgPool, hook: &str) -> AbortOnDropHandle<()> {
    let (pool, hook) = (pool.clone(), hook.to_owned());
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(300));
        for n in 0_u32.. {
            ticks.tick().await;
            let reference = format!("{TRICKLE}{n}");
            // A call that fails is one witness less.
            let _asked = store::bench::enqueue(&pool, &hook, &reference, &reference).await;
        }
    }))
}

#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    Count(u64),
}

async fn several<F, T>(pool: &PgPool, until: Until, act: F) -> anyhow::Result<Rate>
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
            let mut times = Vec::new();
            loop {
                if matches!(until, Until::Time(lasting) if began.elapsed() >= lasting) {
                    return Ok(times);
                }
                let n = next.fetch_add(1, Ordering::Relaxed);
                if matches!(until, Until::Count(count) if n >= count) {
                    return Ok::<_, sqlx::Error>(times);
                }
                let started = Instant::now();
                act(pool.clone(), i64::try_from(n).unwrap_or(i64::MAX)).await?;
                times.push(started.elapsed().as_secs_f64() * 1000.0);
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = clients.join_next().await {
        times.extend(done??);
    }
    let times = Times::of(times);
    let count = u32::try_from(times.count())?;
    Ok(Rate { per_second: f64::from(count) / began.elapsed().as_secs_f64(), times })
}

/// A backlog, [`BULK`] a transaction by one client; the rate.
pub(super) async fn backlog(pool: &PgPool, destination: &str, name: &str, intents: u32) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut from = 0;
    while from < intents {
        let upto = (from + BULK).min(intents);
        store::bench::enqueue_range(pool, destination, name, from..upto).await?;
        from = upto;
    }
    let rate = f64::from(intents) / began.elapsed().as_secs_f64();
    // A backlog of real life has been analyzed by the time it is that long.
    store::bench::analyze(pool).await?;
    Ok(rate)
}

/// Who enqueues at a steady rate.
#[derive(Clone)]
pub(super) enum By {
    /// Plain SQL.
    Sql(PgPool),
    /// The daemon's API, over kept connections.
    Http(Arc<Callers>),
}

impl By {
    async fn enqueue(&self, hook: &str, reference: &str) -> anyhow::Result<()> {
        match self {
            Self::Sql(pool) => Ok(store::bench::enqueue(pool, hook, reference, reference).await?),
            Self::Http(callers) => callers.enqueue(hook, reference).await,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Sql(_) => "sql",
            Self::Http(_) => "http",
        }
    }
}

/// Connections to the daemon's API.
pub(super) struct Callers {
    address: SocketAddr,
    token: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Callers {
    pub(super) fn new(address: SocketAddr, token: &str) -> Arc<Self> {
        Arc::new(Self { address, token: token.to_owned(), idle: Mutex::default() })
    }

    async fn enqueue(&self, hook: &str, reference: &str) -> anyhow::Result<()> {
        let idle = self.idle.lock().await.pop();
        let mut sender = match idle {
            Some(sender) => sender,
            None => yardstick::connect(self.address).await?,
        };
        let payload: serde_json::Value = serde_json::from_str(&store::bench::payload())?;
        let body = serde_json::json!({
            "destination": hook, "reference": reference, "payload": payload, "run_id": reference, "step": 1,
        });
        let request = http::Request::post("/v1/intents")
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        sender.ready().await?;
        let response = sender.send_request(request).await.context("POST /v1/intents")?;
        let status = response.status();
        let said = response.into_body().collect().await?.to_bytes();
        if status != http::StatusCode::CREATED {
            bail!("POST /v1/intents: {status}: {}", String::from_utf8_lossy(&said));
        }
        self.idle.lock().await.push(sender);
        Ok(())
    }
}

/// Enqueues at a steady rate and waits for each to arrive: the times from the start of the call to the arrival.
pub(super) async fn latency(
    by: &By,
    hook: &str,
    sink: &Sink,
    rate: u32,
    lasting: Duration,
) -> anyhow::Result<(Times, u32)> {
    let count = (f64::from(rate) * lasting.as_secs_f64()).ceil() as u32;
    let started = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    let mut calls = JoinSet::new();
    for n in 0..count {
        ticks.tick().await;
        let (by, hook, started) = (by.clone(), hook.to_owned(), Arc::clone(&started));
        calls.spawn(async move {
            let reference = format!("steady-{}-{n}", by.word());
            let began = Instant::now();
            by.enqueue(&hook, &reference).await?;
            started.lock().await.push((reference, began));
            anyhow::Ok(())
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
    let times = started
        .iter()
        .filter_map(|(reference, began)| Some(sink.arrival(reference)?.duration_since(*began).as_secs_f64() * 1000.0))
        .collect();
    Ok((Times::of(times), count))
}
