//! A receiver that counts: a POST counts when its body is complete, before it is answered. It can be asked by key, and told
//! to answer late, to cut the connection, to lose, refuse or fail a share of what comes.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::Notify};

use super::{
    fault::{Fate, Shares},
    load::TRICKLE,
};

/// How long a late answer is held back; longer than the client waits.
const LATE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Arrivals {
    count: u64,
    doubled: usize,
    first: Option<Instant>,
    last: Option<Instant>,
    times: HashMap<String, Instant>,
    keys: HashSet<String>,
    shares: Option<Shares>,
    /// How often each reference was not acted upon.
    failed: HashMap<String, u32>,
    met: HashMap<&'static str, u64>,
}

/// See the module.
pub(super) struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    arrivals: Mutex<Arrivals>,
    arrived: Notify,
}

impl Shared {
    fn with<T>(&self, read: impl FnOnce(&mut Arrivals) -> T) -> T {
        read(&mut self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                tokio::spawn(async move {
                    // Latency of small answers is what is measured.
                    let _set = stream.set_nodelay(true);
                    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
                    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, shared })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forgets everything, faults too, but for the keys: whatever was answered as sent must be found when it is asked for.
    pub(super) fn forget(&self) {
        self.shared.with(|a| *a = Arrivals { keys: std::mem::take(&mut a.keys), ..Arrivals::default() });
    }

    /// What happens to the requests from now on.
    pub(super) fn fails(&self, shares: Shares) {
        self.shared.with(|a| a.shares = Some(shares));
    }

    /// How often each fate was met.
    pub(super) fn met(&self, fate: Fate) -> u64 {
        self.shared.with(|a| a.met.get(fate.as_str()).copied().unwrap_or(0))
    }

    pub(super) fn count(&self) -> u64 {
        self.shared.with(|a| a.count)
    }

    pub(super) fn doubled(&self) -> usize {
        self.shared.with(|a| a.doubled)
    }

    pub(super) fn distinct(&self) -> usize {
        self.shared.with(|a| a.times.len())
    }

    /// When a reference arrived.
    pub(super) fn arrival(&self, reference: &str) -> Option<Instant> {
        self.shared.with(|a| a.times.get(reference).copied())
    }

    /// From the first arrival to the last.
    pub(super) fn span(&self) -> Duration {
        self.shared.with(|a| match (a.first, a.last) {
            (Some(first), Some(last)) if last > first => last.duration_since(first),
            (_, _) => Duration::from_millis(1),
        })
    }

    /// Waits until so many arrived, or so long.
    pub(super) async fn drained(&self, wanted: u64, at_most: Duration) {
        let began = Instant::now();
        while self.count() < wanted && began.elapsed() < at_most {
            let _more = tokio::time::timeout(Duration::from_millis(20), self.shared.arrived.notified()).await;
        }
    }
}

/// The connection ends here, without an answer.
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Full<Bytes>>, Cut> {
    if request.method() == Method::GET {
        return Ok(asked(request.uri().path(), &shared));
    }
    let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let (reference, key) = (header("settled-reference"), header("idempotency-key"));
    if request.into_body().collect().await.is_err() {
        return Err(Cut);
    }
    if reference.as_ref().is_some_and(|reference| reference.starts_with(TRICKLE)) {
        shared.with(|a| a.keys.extend(key));
        return Ok(said(StatusCode::OK, "{}".to_owned()));
    }
    let now = Instant::now();
    let fate = shared.with(|a| {
        let fate = a.fate(reference.as_deref());
        if fate.acts() {
            a.arrive(reference, key, now);
        }
        fate
    });
    if fate.acts() {
        shared.arrived.notify_one();
    }
    match fate {
        Fate::Fine => {}
        Fate::Late => tokio::time::sleep(LATE).await,
        Fate::Cut | Fate::Lost => return Err(Cut),
        Fate::Refused => return Ok(said(StatusCode::UNPROCESSABLE_ENTITY, "{}".to_owned())),
        Fate::Failed => return Ok(said(StatusCode::SERVICE_UNAVAILABLE, "{}".to_owned())),
    }
    Ok(said(StatusCode::OK, "{}".to_owned()))
}

/// The look-up: whose account it is, and what is here under that key.
fn asked(path: &str, shared: &Shared) -> Response<Full<Bytes>> {
    if path == "/account" {
        return said(StatusCode::OK, serde_json::json!({ "account": "bench" }).to_string());
    }
    let key = path.rsplit('/').next().unwrap_or_default();
    if shared.with(|a| a.keys.contains(key)) {
        said(StatusCode::OK, serde_json::json!({ "key": key }).to_string())
    } else {
        said(StatusCode::NOT_FOUND, "{}".to_owned())
    }
}

fn said(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

impl Arrivals {
    fn fate(&mut self, reference: Option<&str>) -> Fate {
        let Some(shares) = self.shares else { return Fate::Fine };
        let failed = self.failed.entry(reference.unwrap_or_default().to_owned()).or_default();
        let fate = shares.draw(*failed, rand::random::<f64>());
        if !fate.acts() {
            *failed += 1;
        }
        *self.met.entry(fate.as_str()).or_default() += 1;
        fate
    }

    fn arrive(&mut self, reference: Option<String>, key: Option<String>, now: Instant) {
        self.count += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.keys.extend(key);
        if let Some(reference) = reference
            && self.times.insert(reference, now).is_some()
        {
            self.doubled += 1;
        }
    }
}
