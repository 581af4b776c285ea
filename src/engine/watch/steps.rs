//! The database clock against our own, which never steps.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// A difference of less is no step: clocks are slewed, and statements take time.
const TOLERATED: TimeDelta = TimeDelta::seconds(2);

/// What a process has seen of the two clocks.
#[derive(Debug)]
pub(super) struct Steps {
    /// Since boot.
    began: Duration,
    /// The same moment by the database clock, once it was heard.
    began_at: Option<DateTime<Utc>>,
    last: Option<Heard>,
    stepped: Option<Duration>,
}

/// One reading: the database read its clock somewhere between the two.
#[derive(Debug, Clone, Copy)]
struct Heard {
    asked: Duration,
    answered: Duration,
    now: DateTime<Utc>,
}

impl Steps {
    pub(super) fn since(began: Duration, at: Option<DateTime<Utc>>) -> Self {
        Self { began, began_at: at, last: None, stepped: None }
    }

    /// Takes a reading; returns the seconds of a step, where there was one.
    ///
    /// Readings overlap and come in any order: one that had to wait for a lock may be older than one that came before it.
    pub(super) fn heard(&mut self, asked: Duration, answered: Duration, now: DateTime<Utc>) -> Option<f64> {
        self.began_at.get_or_insert(now);
        let new = Heard { asked, answered, now };
        let Some(last) = self.last else {
            self.last = Some(new);
            return None;
        };
        // The one that was asked for later is the newer news.
        if asked >= last.asked {
            self.last = Some(new);
        }
        let by_database = now - last.now;
        let least = span(asked) - span(last.answered) - TOLERATED;
        let most = span(answered) - span(last.asked) + TOLERATED;
        if (least..=most).contains(&by_database) {
            return None;
        }
        self.stepped = Some(answered);
        Some((by_database - (span(answered) - span(last.answered))).as_seconds_f64())
    }

    pub(super) fn stepped_within(&self, boot: Duration, wait: Duration) -> bool {
        self.stepped.is_some_and(|stepped| boot < stepped.saturating_add(wait))
    }

    /// A wait that began before this process did counts only from its own start: nobody has watched the clock until then.
    pub(super) fn distrusts(&self, boot: Duration, wait: Duration, since: DateTime<Utc>) -> Option<String> {
        if self.stepped_within(boot, wait) {
            return Some("the database clock stepped".to_owned());
        }
        let watched = self.began_at.is_some_and(|began| since >= began) || boot.saturating_sub(self.began) >= wait;
        (!watched).then(|| "this daemon has not watched the clock long enough since its start".to_owned())
    }

    pub(super) fn began(&self, boot: Duration) -> (DateTime<Utc>, Duration) {
        (self.began_at.unwrap_or(DateTime::<Utc>::MAX_UTC), boot.saturating_sub(self.began))
    }
}

fn span(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn boot(seconds: u64) -> Duration {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_step_either_way_is_noticed_and_a_slow_answer_is_none() {
        let mut steps = Steps::since(START, None);
        assert_eq!(steps.heard(boot(0), boot(0), at(0)), None);
        assert_eq!(steps.heard(boot(5), boot(45), at(45)), None, "the answer took forty seconds");
        assert_eq!(steps.heard(boot(50), boot(50), at(51)), None, "one second is tolerated");
        assert_eq!(steps.heard(boot(60), boot(60), at(661)), Some(600.0));
        assert!(steps.stepped_within(boot(69), Duration::from_secs(10)));
        assert!(!steps.stepped_within(boot(70), Duration::from_secs(10)));
        assert_eq!(steps.heard(boot(80), boot(80), at(81)), Some(-600.0));
    }

    #[test]
    fn a_reading_that_waited_for_a_lock_while_younger_ones_came_is_no_step() {
        let mut steps = Steps::since(START, None);
        assert_eq!(steps.heard(boot(0), boot(0), at(0)), None);
        assert_eq!(steps.heard(boot(8), boot(8), at(8)), None);
        assert_eq!(steps.heard(boot(1), boot(9), at(1)), None, "the clock was read before the wait");
        assert_eq!(steps.heard(boot(10), boot(10), at(610)), Some(600.0), "the youngest reading still counts");
    }

    #[test]
    fn what_began_before_the_process_is_believed_only_when_it_has_watched_long_enough() {
        let mut steps = Steps::since(START, None);
        let wait = Duration::from_secs(60);
        assert!(steps.distrusts(boot(0), wait, at(9)).is_some(), "nothing was heard yet");
        steps.heard(boot(0), boot(0), at(10));
        assert!(steps.distrusts(boot(59), wait, at(9)).is_some());
        assert_eq!(steps.distrusts(boot(60), wait, at(9)), None);
        assert_eq!(steps.distrusts(boot(0), wait, at(10)), None);
    }
}
