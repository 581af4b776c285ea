//! A place where a fake waits until a test lets it go on.

use std::time::Duration;

use tokio::sync::watch;

/// Holds whoever passes until it is released; tells the test how many have arrived.
pub struct Latch {
    arrived: watch::Sender<usize>,
    open: watch::Sender<bool>,
}

impl Default for Latch {
    fn default() -> Self {
        Self { arrived: watch::Sender::new(0), open: watch::Sender::new(false) }
    }
}

impl Latch {
    /// Called by the fake: reports in, then waits for the release.
    pub async fn pass(&self) {
        self.arrived.send_modify(|n| *n += 1);
        // The sender lives as long as `self`, so the only end of this wait is the release.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Lets everybody pass, now and later.
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// Waits until that many have arrived; false when the time is over first.
    pub async fn arrived(&self, many: usize, at_most: Duration) -> bool {
        let mut arrived = self.arrived.subscribe();
        matches!(tokio::time::timeout(at_most, arrived.wait_for(|n| *n >= many)).await, Ok(Ok(_)))
    }
}
