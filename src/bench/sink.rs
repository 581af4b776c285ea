//! A receiver that counts: a POST counts when its body is complete, before it is answered.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::Notify};

#[derive(Default)]
struct Arrivals {
    count: u64,
    doubled: usize,
    first: Option<Instant>,
    last: Option<Instant>,
    times: HashMap<String, Instant>,
}

/// See the module.
pub(super) struct Sink {
    address: SocketAddr,
    arrivals: Arc<Mutex<Arrivals>>,
    arrived: Arc<Notify>,
}

impl Sink {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let arrivals = Arc::new(Mutex::new(Arrivals::default()));
        let arrived = Arc::new(Notify::new());
        let (shared, notify) = (Arc::clone(&arrivals), Arc::clone(&arrived));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, notify) = (Arc::clone(&shared), Arc::clone(&notify));
                tokio::spawn(async move {
                    // Latency of small answers is what is measured.
                    let _set = stream.set_nodelay(true);
                    let service = service_fn(move |request| answer(request, Arc::clone(&shared), Arc::clone(&notify)));
                    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, arrivals, arrived })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn with<T>(&self, read: impl FnOnce(&mut Arrivals) -> T) -> T {
        read(&mut self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets everything.
    pub(super) fn forget(&self) {
        self.with(|a| *a = Arrivals::default());
    }

    /// Keeps what arrived, but not when.
    pub(super) fn forget_times(&self) {
        self.with(|a| {
            a.first = None;
            a.last = None;
        });
    }

    pub(super) fn count(&self) -> u64 {
        self.with(|a| a.count)
    }

    pub(super) fn doubled(&self) -> usize {
        self.with(|a| a.doubled)
    }

    pub(super) fn distinct(&self) -> usize {
        self.with(|a| a.times.len())
    }

    /// When a reference arrived.
    pub(super) fn arrival(&self, reference: &str) -> Option<Instant> {
        self.with(|a| a.times.get(reference).copied())
    }

    /// Waits until so many arrived; the time from the first to the last.
    pub(super) async fn drained(&self, wanted: u64, at_most: Duration) -> Duration {
        let began = Instant::now();
        while self.count() < wanted && began.elapsed() < at_most {
            let _more = tokio::time::timeout(Duration::from_millis(20), self.arrived.notified()).await;
        }
        self.with(|a| match (a.first, a.last) {
            (Some(first), Some(last)) => last.duration_since(first),
            (None, _) | (_, None) => Duration::from_secs(1),
        })
    }
}

async fn answer(
    request: Request<Incoming>,
    arrivals: Arc<Mutex<Arrivals>>,
    arrived: Arc<Notify>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let reference = request.headers().get("settled-reference").and_then(|v| v.to_str().ok()).map(str::to_owned);
    if request.into_body().collect().await.is_ok() {
        let now = Instant::now();
        let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.count += 1;
        arrivals.first.get_or_insert(now);
        arrivals.last = Some(now);
        if let Some(reference) = reference
            && arrivals.times.insert(reference, now).is_some()
        {
            arrivals.doubled += 1;
        }
        drop(arrivals);
        arrived.notify_one();
    }
    Ok(Response::new(Full::new(Bytes::from_static(b"{}"))))
}
