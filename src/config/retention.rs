//! The arithmetic of the two windows (design section 9): keys must outlive every moment at which a repeat, a retry or a
//! question about an intent is still possible.

use std::time::Duration;

use super::settings::Settings;

/// The window in which a repeat is recognised, and what it must cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// How long keys are kept.
    pub keys: Duration,
    /// Longest time that an intent may go on being attempted.
    pub retries: Duration,
    /// Longest time that a downstream is asked about an attempt, or keeps a key.
    pub look_back: Duration,
    /// Longest time after which a caller may repeat.
    pub callers: Duration,
}

impl Windows {
    /// From the settings.
    pub fn of(settings: &Settings) -> Self {
        let look_back = settings
            .destinations
            .iter()
            .flat_map(|d| [d.look_up.as_ref().map(|l| l.horizon), d.replay.as_ref().map(|r| r.key_lifetime)])
            .flatten()
            .max()
            .unwrap_or_default();
        let retention = &settings.retention;
        Self {
            keys: Duration::from_secs(u64::from(retention.keys_days) * 86_400),
            retries: retention.longest_retry_horizon,
            look_back,
            callers: retention.callers_replay_horizon,
        }
    }

    /// What keys must cover.
    pub fn needed(&self) -> Duration {
        self.retries + self.look_back + self.callers
    }

    /// What is missing; zero when the window is long enough.
    pub fn gap(&self) -> Duration {
        self.needed().saturating_sub(self.keys)
    }

    /// The missing part in whole hours, rounded up.
    pub fn gap_hours(&self) -> u64 {
        hours(self.gap())
    }

    /// The sum in words.
    pub fn words(&self) -> String {
        format!(
            "keys are kept {} h; needed {} h = longest retry horizon {} h + look-back {} h + callers' replay horizon {} h",
            hours(self.keys),
            hours(self.needed()),
            hours(self.retries),
            hours(self.look_back),
            hours(self.callers)
        )
    }
}

/// Whole hours, rounded up.
pub fn hours(duration: Duration) -> u64 {
    duration.as_secs().div_ceil(3600)
}
