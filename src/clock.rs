//! The one place that reads clocks. Loops, channels and surfaces take a [`Clock`], so that tests can turn it.
//!
//! Leases are counted by the database's clock ([`Clock::sql_now`] is `None` in production); what may still be written by
//! this process is bounded by boot time and wall time, the stricter of the two.

use std::{
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chrono::{DateTime, Utc};

/// Reads the time.
pub trait Clock: Send + Sync {
    /// Wall time.
    fn now(&self) -> DateTime<Utc>;

    /// What statements use instead of the database's clock: `None` in production, the turned time in tests.
    fn sql_now(&self) -> Option<DateTime<Utc>>;

    /// Time since boot, suspended time included.
    fn boot(&self) -> Duration;

    /// Both, read together.
    fn moment(&self) -> Moment {
        Moment { boot: self.boot(), wall: self.now() }
    }
}

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Since boot.
    pub boot: Duration,
    /// Wall time.
    pub wall: DateTime<Utc>,
}

/// An instant after which nothing may be written: passed as soon as either clock says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    boot: Duration,
    wall: DateTime<Utc>,
}

impl Deadline {
    /// `span` after a moment. Read the moment *before* the claim is sent, never after.
    pub fn after(start: Moment, span: Duration) -> Self {
        Self { boot: start.boot.saturating_add(span), wall: start.wall + span }
    }

    /// What is left by the stricter clock; zero once it has passed.
    pub fn remaining(&self, clock: &dyn Clock) -> Duration {
        let now = clock.moment();
        let by_wall = (self.wall - now.wall).to_std().unwrap_or_default();
        self.boot.saturating_sub(now.boot).min(by_wall)
    }

    /// Whether it has passed.
    pub fn is_past(&self, clock: &dyn Clock) -> bool {
        self.remaining(clock).is_zero()
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now()
    }

    fn sql_now(&self) -> Option<DateTime<Utc>> {
        None
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
    }

    #[cfg(not(target_os = "linux"))]
    fn boot(&self) -> Duration {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// A clock that tests turn.
#[derive(Debug)]
pub struct TestClock {
    moment: Mutex<Moment>,
}

impl TestClock {
    /// Stands at that time.
    pub fn at(wall: DateTime<Utc>) -> Self {
        Self { moment: Mutex::new(Moment { boot: Duration::from_secs(1_000_000), wall }) }
    }

    /// Turns both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut moment = self.lock();
        moment.boot += by;
        moment.wall += by;
    }

    /// Sets the wall clock alone, as an operator or a time server would.
    pub fn set_wall(&self, wall: DateTime<Utc>) {
        self.lock().wall = wall;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Moment> {
        self.moment.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for TestClock {
    fn now(&self) -> DateTime<Utc> {
        self.lock().wall
    }

    fn sql_now(&self) -> Option<DateTime<Utc>> {
        Some(self.lock().wall)
    }

    fn boot(&self) -> Duration {
        self.lock().boot
    }

    fn moment(&self) -> Moment {
        *self.lock()
    }
}

/// Wall time in whole seconds since 1970, for signatures that state when they were made.
#[expect(clippy::disallowed_methods, reason = "the one place where the process looks at the wall clock in seconds")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_clock_ends_a_deadline() {
        let clock = TestClock::at(DateTime::UNIX_EPOCH);
        let deadline = Deadline::after(clock.moment(), Duration::from_secs(10));
        clock.advance(Duration::from_secs(4));
        assert_eq!(deadline.remaining(&clock), Duration::from_secs(6));
        clock.set_wall(clock.now() + Duration::from_secs(5));
        assert_eq!(deadline.remaining(&clock), Duration::from_secs(1));
        // A wall clock that is set back does not give time back.
        clock.set_wall(DateTime::UNIX_EPOCH);
        clock.advance(Duration::from_secs(6));
        assert!(deadline.is_past(&clock));
    }

    #[test]
    fn boot_time_goes_forward() {
        let first = SystemClock.boot();
        assert!(SystemClock.boot() >= first && !first.is_zero());
    }
}
