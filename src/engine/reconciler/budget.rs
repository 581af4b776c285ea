//! Questions per minute and destination, in this process.

use std::{collections::HashMap, time::Duration};

/// Token buckets, a minute deep.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    buckets: HashMap<String, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Duration,
}

impl Budgets {
    /// Takes at most `wanted`, by the time since boot.
    pub(super) fn take(&mut self, name: &str, per_minute: u32, wanted: i64, boot: Duration) -> i64 {
        let full = f64::from(per_minute);
        let bucket = self.buckets.entry(name.to_owned()).or_insert(Bucket { tokens: full, filled: boot });
        let gone = boot.saturating_sub(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + gone * full / 60.0).min(full);
        bucket.filled = boot;
        let mut taken = 0;
        while taken < wanted && bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            taken += 1;
        }
        taken
    }

    /// Gives back what was not used.
    pub(super) fn give_back(&mut self, name: &str, unused: i64) {
        if let Some(bucket) = self.buckets.get_mut(name) {
            for _ in 0..unused {
                bucket.tokens += 1.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_gives_what_is_allowed_in_a_minute() {
        let mut budgets = Budgets::default();
        let start = Duration::from_secs(100);
        assert_eq!(budgets.take("a", 20, 50, start), 20);
        assert_eq!(budgets.take("a", 20, 50, start), 0);
        assert_eq!(budgets.take("a", 20, 50, start + Duration::from_secs(30)), 10);
        budgets.give_back("a", 4);
        assert_eq!(budgets.take("a", 20, 50, start + Duration::from_secs(30)), 4);
    }
}
