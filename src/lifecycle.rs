//! Starting and stopping as a service: signals, a two-step shutdown, notices to the service manager.
//!
//! Soft: stop claiming, give back what has not begun, let running sends finish. Hard: write the rest as unknown and go.
//! A second signal makes it hard at once; the daemon makes it hard when the drain limit is over.

use std::{future::Future, time::Duration};

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The two steps, shared by everything that runs.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    soft: CancellationToken,
    hard: CancellationToken,
}

impl Shutdown {
    /// Nothing is stopping.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the first step.
    pub fn begin(&self) {
        self.soft.cancel();
    }

    /// Begins the second step, and the first with it.
    pub fn hurry(&self) {
        self.soft.cancel();
        self.hard.cancel();
    }

    /// Whether the first step has begun.
    pub fn is_stopping(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Whether the second step has begun.
    pub fn is_hurried(&self) -> bool {
        self.hard.is_cancelled()
    }

    /// Ends when the first step begins.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        self.soft.clone().cancelled_owned()
    }

    /// Ends when the second step begins.
    pub fn hurried(&self) -> impl Future<Output = ()> + Send + 'static {
        self.hard.clone().cancelled_owned()
    }

    /// Listens for SIGTERM and SIGINT: the first signal begins, the second hurries.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn on_signals(&self) -> std::io::Result<tokio::task::JoinHandle<()>> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let this = self.clone();
        Ok(tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if this.is_stopping() {
                    warn!(signal = name, "stopping at once");
                    this.hurry();
                    return;
                }
                info!(signal = name, "stopping; running sends may finish");
                stopping();
                this.begin();
            }
        }))
    }
}

/// Tells the service manager that work has begun.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells it what the daemon is at.
pub fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Tells it that the daemon stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Feeds the watchdog, where one is set, as long as `alive` says so. Goes on while draining.
pub async fn watchdog(shutdown: Shutdown, alive: impl Fn() -> bool + Send) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval((limit / 3).max(Duration::from_millis(100)));
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.hurried() => return,
        }
        if alive() {
            notify(&[NotifyState::Watchdog]);
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Without a service manager there is nobody to tell, and that is no error.
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "service manager could not be told");
    }
}
