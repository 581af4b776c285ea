//! How long to wait. Pure: the roll of the dice comes in as a value. Used by the dispatcher, the reconciler and the judge.
//!
//! No count overflows, no wait leaves the calendar, none turns into "at once".

use std::time::Duration;

/// No wait is longer, whatever a file says.
pub const CEILING: Duration = Duration::from_secs(30 * 24 * 3600);

/// Time until the next attempt, after `attempt_count` of them (1 = after the first).
///
/// Doubles from `base` up to `max`; `jitter` in 0..1 moves it by up to a fifth either way, 0.5 leaves it. A `retry_after`
/// (seconds, RFC 9110 section 10.2.3) that asks for more is obeyed, and spread only upwards, as far as `max`.
pub fn delay(attempt_count: u32, base: Duration, max: Duration, jitter: f64, retry_after: Option<u64>) -> Duration {
    let max = max.min(CEILING);
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.5 };
    let own = doubled(base, attempt_count, max).mul_f64(0.8 + 0.4 * jitter).min(max);
    let asked = retry_after.map_or(Duration::ZERO, Duration::from_secs).min(max);
    if asked > own { asked.mul_f64(1.0 + 0.2 * jitter).min(max) } else { own }
}

/// Time until the next question about the same doubt, after `question_number` of them.
///
/// Doubles from `spacing`; capped at the lag where that lies between a quarter of an hour and an hour, so that a doubt
/// which cannot be proven costs the downstream little while it waits for the horizon.
pub fn ask_delay(question_number: u32, lag: Duration, spacing: Duration) -> Duration {
    let cap = lag.clamp(Duration::from_secs(900), Duration::from_secs(3600)).max(spacing).min(CEILING);
    doubled(spacing.max(Duration::from_secs(1)), question_number, cap)
}

fn doubled(base: Duration, count: u32, max: Duration) -> Duration {
    let factor = 1u32.checked_shl(count.saturating_sub(1)).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: Duration = Duration::from_secs(5);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn it_doubles_from_the_base_to_the_cap() {
        let waits: Vec<u64> = (1..=12).map(|n| delay(n, BASE, HOUR, 0.5, None).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
    }

    #[test]
    fn no_number_of_attempts_overflows_or_comes_back_at_once() {
        for count in [0, 31, 32, 33, 255, 256, 2000, 32_767, 2_147_483_647, u32::MAX] {
            let wait = delay(count, BASE, HOUR, 0.5, None);
            assert!(wait >= BASE && wait <= HOUR, "{count}: {wait:?}");
        }
        assert_eq!(delay(2000, BASE, Duration::MAX, 1.0, Some(u64::MAX)), CEILING);
    }

    #[test]
    fn retry_after_is_obeyed_up_to_the_cap_and_never_undercut() {
        assert_eq!(delay(1, BASE, HOUR, 0.0, Some(120)).as_secs(), 120);
        assert_eq!(delay(1, BASE, HOUR, 1.0, Some(100)).as_secs(), 120);
        assert_eq!(delay(1, BASE, HOUR, 0.5, Some(86_400)), HOUR);
        assert_eq!(delay(8, BASE, HOUR, 0.5, Some(1)).as_secs(), 640);
    }

    #[test]
    fn questions_thin_out_but_go_on() {
        let spacing = Duration::from_secs(30);
        let waits: Vec<u64> = (1..8).map(|n| ask_delay(n, Duration::from_secs(10), spacing).as_secs()).collect();
        assert_eq!(waits, [30, 60, 120, 240, 480, 900, 900]);
        assert_eq!(ask_delay(u32::MAX, Duration::from_secs(5 * 86_400), spacing), HOUR);
        assert_eq!(ask_delay(3, Duration::ZERO, 2 * HOUR), 2 * HOUR);
    }

    proptest! {
        #[test]
        fn every_wait_is_bounded(count: u32, base in 1u64..1_000_000, max in 1u64..1_000_000, jitter: f64, after: Option<u64>) {
            let (base, max) = (Duration::from_millis(base), Duration::from_millis(max));
            let wait = delay(count, base, max, jitter, after);
            prop_assert!(wait <= max);
            prop_assert!(wait >= base.min(max).mul_f64(0.79));
        }
    }
}
