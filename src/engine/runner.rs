//! Drives a loop: it alone sleeps. A step takes no input; what to do comes from the database, a wake-up only shortens the wait.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{domain::gate::BoxFuture, store::error::StoreError, telemetry};

/// What a step found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was due.
    Idle,
    /// So many were moved.
    Worked(usize),
}

/// One loop of the engine.
pub trait Step: Send {
    /// Name in logs, metrics and `/livez`.
    const NAME: &'static str;

    /// Does what is due, bounded in number and time.
    ///
    /// # Errors
    /// When Postgres does; the runner logs it once and waits longer.
    fn step(&mut self) -> impl Future<Output = Result<Progress, StoreError>> + Send;
}

/// How long a loop waits.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// After work: look again at once, or after this.
    pub busy: Duration,
    /// Shortest wait while idle.
    pub idle_min: Duration,
    /// Longest wait while idle; doubled up to here.
    pub idle_max: Duration,
}

/// A loop that makes no step for this long is stuck. Longer than any statement may take.
const STUCK: Duration = Duration::from_secs(120);

/// Runs a loop until the token is cancelled. Errors are logged here, once, and back off up to ten seconds.
pub fn drive<S: Step + 'static>(
    mut step: S,
    pace: Pace,
    wake: Arc<Notify>,
    progress: telemetry::progress::Progress,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut wait = pace.idle_min;
        let mut failures = 0_u32;
        progress.watch(S::NAME, STUCK);
        while !stop.is_cancelled() {
            // Register interest before looking, so that no wake-up is lost.
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match step.step().await {
                Ok(Progress::Worked(_)) => {
                    failures = 0;
                    wait = pace.busy;
                }
                Ok(Progress::Idle) => {
                    failures = 0;
                    wait = if wait < pace.idle_min { pace.idle_min } else { (wait * 2).min(pace.idle_max) };
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    tracing::warn!(r#loop = S::NAME, failures, %error, "step failed; it will be taken again");
                    wait = Duration::from_millis(100 << failures.min(7)).min(Duration::from_secs(10));
                }
            }
            progress.tick(S::NAME);
            if wait.is_zero() {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                // After work the pause lets more gather; who wakes it then would have it looked for what has just been found.
                () = &mut woken, if wait > pace.busy => wait = pace.busy,
                () = tokio::time::sleep(wait) => {}
            }
        }
        progress.done(S::NAME);
    })
}
