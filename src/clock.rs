//! Time. In production the database decides about leases; the process only watches its own deadlines. Tests turn a clock.

use std::{
    fmt::Debug,
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, Utc};
use rustix::time::{ClockId, clock_gettime};

/// Where time comes from.
pub trait Clock: Debug + Send + Sync {
    /// Wall clock of this process.
    fn now(&self) -> DateTime<Utc>;

    /// What SQL uses instead of `clock_timestamp()`; `None` lets the database decide.
    fn sql_now(&self) -> Option<DateTime<Utc>>;

    /// Time since boot, including suspends.
    fn boot(&self) -> Duration;
}

/// The real clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::<Utc>::from(SystemTime::now())
    }

    fn sql_now(&self) -> Option<DateTime<Utc>> {
        None
    }

    fn boot(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

/// A clock that stands still until it is turned.
#[derive(Debug)]
pub struct TestClock {
    now: Mutex<DateTime<Utc>>,
    start: DateTime<Utc>,
}

impl TestClock {
    /// A clock that shows the present second.
    pub fn new() -> Self {
        let now = DateTime::from_timestamp(i64::try_from(unix_seconds()).unwrap_or(0), 0).unwrap_or_default();
        Self { now: Mutex::new(now), start: now }
    }

    /// Turns it forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now += by;
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> DateTime<Utc> {
        *self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sql_now(&self) -> Option<DateTime<Utc>> {
        Some(self.now())
    }

    fn boot(&self) -> Duration {
        (self.now() - self.start).to_std().unwrap_or_default()
    }
}

/// Seconds since the epoch, for timestamps on the wire.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
