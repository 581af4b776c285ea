//! The HTTP API. Parses, calls the engine or reads the store, renders; it decides nothing.
//!
//! Every answer is made from what is durable. Errors are RFC 9457 problems with stable types ([`problem`]); every call names
//! its caller by a token ([`auth`]), and producers see their own tenant only.

mod asking;
pub mod auth;
mod body;
mod bulk;
mod escalations;
mod health;
mod intents;
mod listen;
pub mod openapi;
mod pauses;
pub mod problem;
mod router;
mod segments;
mod sightings;
mod starting;

use std::sync::Arc;

use sqlx::PgPool;
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore},
};

use crate::{
    clock::Clock,
    config::retention::Windows,
    engine::fleet::Fleet,
    lifecycle::Shutdown,
    telemetry::{metrics::Metrics, progress::Progress},
};

pub use router::router;
pub use starting::Starting;

/// Calls that may wait for an intent to settle at the same time; more than that are answered at once.
const WAITERS: usize = 256;

/// What the handlers share.
#[derive(Clone)]
pub struct AppState {
    /// The ledger.
    pub pool: PgPool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Numbers.
    pub metrics: Arc<Metrics>,
    /// Steps of the loops.
    pub progress: Progress,
    /// Wakes the dispatcher after a commit.
    pub wake: Arc<Notify>,
    /// How long a repeat is recognised.
    pub windows: Windows,
    /// Ends waits when the daemon stops.
    pub shutdown: Shutdown,
    /// The destinations, whose policies the fold needs; without them no act is taken.
    pub fleet: Option<Arc<Fleet>>,
    waiters: Arc<Semaphore>,
    counted: Arc<health::Counted>,
}

impl AppState {
    /// State of one daemon.
    pub fn new(
        pool: PgPool,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        progress: Progress,
        wake: Arc<Notify>,
        windows: Windows,
        shutdown: Shutdown,
    ) -> Self {
        metrics.dedupe_window(i64::try_from(crate::config::retention::hours(windows.keys)).unwrap_or(i64::MAX));
        Self {
            pool,
            clock,
            metrics,
            progress,
            wake,
            windows,
            shutdown,
            fleet: None,
            waiters: Arc::new(Semaphore::new(WAITERS)),
            counted: Arc::default(),
        }
    }

    /// With the destinations that this process serves, so that people can act.
    #[must_use]
    pub fn with_fleet(mut self, fleet: Arc<Fleet>) -> Self {
        self.fleet = Some(fleet);
        self
    }
}

/// Serves until the daemon stops; calls that are being answered may finish, until it is in a hurry.
///
/// # Errors
/// None today; a listener that cannot accept is tried again.
pub async fn serve(listener: TcpListener, state: AppState, shutdown: Shutdown) -> std::io::Result<()> {
    listen::serve(listener, router(state), &shutdown).await;
    Ok(())
}
