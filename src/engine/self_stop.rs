//! The self-stop of one attempt: clocks at every write, and the row in Postgres before the last bytes where it matters.
//!
//! Not a fence: a process frozen between the check and the write can still act. That is found by asking.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    clock::{Clock, Deadline, Moment},
    domain::{
        gate::{BoxFuture, Gate},
        outcome::{DoubtKind, Ended, Outcome, Proof, Report, Stage},
    },
    store,
};

/// From this age on a first attempt asks the row as well.
const FRESH: Duration = Duration::from_secs(5);

/// How long the row may take to answer; an attempt that cannot be sure does not send.
const ROW_LIMIT: Duration = Duration::from_secs(3);

/// The time an attempt may use, from clocks that were read *before* the claim was sent: the lease starts later, in the
/// database.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    start: Moment,
    length: Duration,
}

impl Allowance {
    /// Reads the clocks.
    pub fn before_claim(clock: &dyn Clock, lease: Duration) -> Self {
        Self { start: clock.moment(), length: lease }
    }

    /// The same, but no longer than `limit` (a replay must end inside the key's life).
    pub fn no_longer_than(self, limit: Duration) -> Self {
        Self { length: self.length.min(limit), ..self }
    }

    fn remaining(&self, clock: &dyn Clock) -> Duration {
        Deadline::after(self.start, self.length).remaining(clock)
    }

    fn age(&self, clock: &dyn Clock) -> Duration {
        clock.boot().saturating_sub(self.start.boot)
    }
}

/// The gate of one attempt.
pub struct SelfStop {
    /// Clocks.
    pub clock: Arc<dyn Clock>,
    /// When it closes.
    pub allowance: Allowance,
    /// Where the row is.
    pub pool: PgPool,
    /// The intent.
    pub intent_id: Uuid,
    /// The attempt.
    pub attempt: i32,
    /// Its fence.
    pub token: Uuid,
    /// How far it has come.
    pub passed: Passed,
    /// The downstream may act on a request that stayed incomplete.
    pub acts_on_halves: bool,
}

/// What an attempt has let through, for the case that it is given up from outside.
#[derive(Debug, Default)]
pub struct Passed {
    bytes: AtomicU64,
    last: AtomicBool,
}

impl SelfStop {
    /// The process stops with the send under way. While the last bytes were held back, or none was written at all, nothing can
    /// have happened; after that it may have.
    pub fn interrupted(&self) -> Ended {
        const WHY: &str = "the daemon was stopped in mid-send";
        let bytes = self.passed.bytes.load(Ordering::Acquire);
        let mut report = Report::nothing_written(WHY);
        report.bytes_handed = bytes;
        report.millis = u64::try_from(self.allowance.age(&*self.clock).as_millis()).unwrap_or(u64::MAX);
        report.closed = Some("reset".to_owned());
        let outcome = if bytes > 0 && self.passed.last.load(Ordering::Acquire) {
            report.stage = Stage::Handed;
            Outcome::Ambiguous { doubt: DoubtKind::Interrupted }
        } else if bytes > 0 && self.acts_on_halves {
            report.stage = Stage::Body;
            Outcome::Ambiguous { doubt: DoubtKind::Interrupted }
        } else if bytes > 0 {
            report.stage = Stage::Body;
            Outcome::NotSent { proof: Proof::SelfStopped, retry_after: None }
        } else {
            Outcome::NotSent { proof: Proof::NotStarted, retry_after: None }
        };
        Ended { outcome, report }
    }
}

impl Gate for SelfStop {
    fn is_open(&self) -> bool {
        !self.remaining().is_zero()
    }

    fn remaining(&self) -> Duration {
        self.allowance.remaining(&*self.clock)
    }

    fn wrote(&self, bytes: usize) {
        self.passed.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    fn last_bytes(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if !self.is_open() {
                return false;
            }
            let age = self.allowance.age(&*self.clock);
            if self.attempt > 1 || age > FRESH {
                // One statement in auto-commit; no BEGIN is ever cancelled.
                let still = store::attempts::still_open(&self.pool, self.intent_id, self.attempt, self.token);
                match tokio::time::timeout(ROW_LIMIT, still).await {
                    Ok(Ok(true)) => {}
                    Ok(Ok(false) | Err(_)) | Err(_) => return false,
                }
            }
            let open = self.is_open();
            if open {
                self.passed.last.store(true, Ordering::Release);
            }
            open
        })
    }
}
