//! The address answers from the first moment on: alive, not ready. Until the ledger has been migrated and looked at, callers
//! learn that they come too early, instead of being refused a connection.

use std::{io, time::Duration};

use axum::{
    Json, Router,
    response::{IntoResponse, Response},
    routing::get,
};
use http::StatusCode;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    health::{Liveness, Readiness},
    openapi,
    problem::{Kind as ProblemKind, Problem},
};

/// A caller that keeps its connection without a word must not keep the daemon from its start.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Answers until [`Starting::listener`] takes the address over, or until it is dropped.
#[must_use = "nothing answers any more once this is dropped"]
pub struct Starting {
    stop: DropGuard,
    listener: TcpListener,
    task: JoinHandle<()>,
}

impl Starting {
    /// Answers on this listener.
    ///
    /// # Errors
    /// When its socket cannot be shared.
    pub fn on(listener: TcpListener) -> io::Result<Self> {
        // Two handles of one socket: what waits to be accepted is lost by neither.
        let kept = listener.into_std()?;
        let lent = TcpListener::from_std(kept.try_clone()?)?;
        let listener = TcpListener::from_std(kept)?;
        let router = Router::new()
            .route("/livez", get(|| async { Json(Liveness { alive: true, loops: Vec::new() }) }))
            .route("/readyz", get(ready))
            .route("/openapi.json", get(openapi::show))
            .fallback(|| async { Problem::new(ProblemKind::Unavailable, "settled is starting") });
        let stop = CancellationToken::new();
        let served = axum::serve(lent, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let task = tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::warn!(%error, "nothing answers while settled starts");
            }
        });
        Ok(Self { stop: stop.drop_guard(), listener, task })
    }

    /// The listener again, when those who had come are answered.
    pub async fn listener(self) -> TcpListener {
        let Self { stop, listener, mut task } = self;
        drop(stop);
        if tokio::time::timeout(LAST_WORDS, &mut task).await.is_err() {
            task.abort();
        }
        listener
    }
}

async fn ready() -> Response {
    let body = Readiness::starting("being migrated or looked at");
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}
