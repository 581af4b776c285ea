//! How fast a destination is sent to: what its configuration allows, what it was learned to bear, and pauses it asks for.
//!
//! For the whole fleet: the row of `settled.paces` is locked in the claiming transaction. Destinations without a limit have no
//! such row and pay nothing. What comes too fast waits in the queue; it is neither failed nor does it spend an attempt.
//! A destination that says "too much" is sent to more slowly from then on, fast growth up to the last pace that was well
//! borne, slow growth above it. After an outage it begins with one send a second.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgPool;

use super::{
    fleet::{Fleet, Served},
    folding::after,
    results::Finished,
};
use crate::{
    clock::Clock,
    config::destination::Rate,
    domain::outcome::{Outcome, Proof},
    store::{self, error::StoreError, paces::PaceRow},
};

/// Sends a second after an outage, and of a destination that says "too much" before anything is known about it.
const FIRST: f64 = 1.0;
/// Slower than this no "too much" makes it: one a minute.
const SLOWEST: f64 = 1.0 / 60.0;
/// A learned pace beyond this limits nothing and is forgotten.
const ENOUGH: f64 = 10_000.0;
/// What a "too much" leaves of the pace: while it was doubling, and later.
const HALVED: f64 = 0.5;
const EASED: f64 = 0.8;
/// Growth in a second in which something was taken: up to the ceiling, and above it.
const FAST: f64 = 1.41;
const SLOW: f64 = 1.01;
/// A learned pace lets through at once one, and what this many seconds bring.
const SPREAD: f64 = 0.2;
/// The pause of a destination that asks for none.
const PAUSE: Duration = Duration::from_secs(1);

/// Sends a second that are in force, and how many at once; `None` where nothing limits it.
fn in_force(pace: &PaceRow, declared: Option<&Rate>) -> Option<(f64, f64)> {
    let learned = pace.learned.map(|rate| (rate, 1.0 + rate * SPREAD));
    match (learned, declared.map(|rate| (rate.a_second(), rate.burst()))) {
        (Some(learned), Some(declared)) => Some((learned.0.min(declared.0), learned.1.min(declared.1))),
        (Some(only), None) | (None, Some(only)) => Some(only),
        (None, None) => None,
    }
}

/// How many sends may begin now. Counts the tokens up to `now`.
pub fn allowance(pace: &mut PaceRow, declared: Option<&Rate>, now: DateTime<Utc>) -> usize {
    if pace.not_before.is_some_and(|at| at > now) {
        return 0;
    }
    let Some((rate, burst)) = in_force(pace, declared) else { return usize::MAX };
    // A clock that went back brings nothing and takes nothing.
    let gone = (now - pace.counted_at).as_seconds_f64().max(0.0);
    pace.tokens = (pace.tokens + gone * rate).min(burst);
    pace.counted_at = now;
    (0..=1024).rev().find(|n| f64::from(*n) <= pace.tokens).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

/// So many began.
pub fn spend(pace: &mut PaceRow, begun: usize) {
    let begun = u32::try_from(begun).map_or(f64::MAX, f64::from);
    pace.tokens = (pace.tokens - begun).max(0.0);
}

/// The destination said "too much" to an attempt that was claimed then; `wait` is what it asked for.
pub fn slow(
    pace: &mut PaceRow,
    declared: Option<&Rate>,
    claimed_at: DateTime<Utc>,
    now: DateTime<Utc>,
    wait: Option<Duration>,
) {
    let until = after(now, wait.unwrap_or(PAUSE));
    pace.not_before = Some(pace.not_before.map_or(until, |at| at.max(until)));
    // What left before the last slowing down says nothing about the pace since.
    if pace.slowed_at.is_some_and(|slowed| claimed_at <= slowed) {
        return;
    }
    let slower = match (pace.learned, declared) {
        (Some(learned), _) if pace.ceiling.is_none_or(|ceiling| learned < ceiling) => learned * HALVED,
        (Some(learned), _) => learned * EASED,
        (None, Some(declared)) => declared.a_second() * EASED,
        (None, None) => FIRST,
    }
    .max(SLOWEST);
    // Before anything is known the first growth finds the ceiling.
    pace.ceiling = (pace.learned.is_some() || declared.is_some()).then_some(slower);
    pace.learned = Some(slower);
    pace.tokens = pace.tokens.min(1.0);
    pace.slowed_at = Some(now);
    pace.grown_at = Some(now);
}

/// The destination took something: once a second its learned pace grows. False where nothing changed.
pub fn grow(pace: &mut PaceRow, declared: Option<&Rate>, now: DateTime<Utc>) -> bool {
    let Some(learned) = pace.learned else { return false };
    if pace.grown_at.is_some_and(|grown| now - grown < TimeDelta::seconds(1)) {
        return false;
    }
    let fast = pace.ceiling.is_none_or(|ceiling| learned < ceiling);
    let grown = learned * if fast { FAST } else { SLOW };
    // The ceiling is not jumped over.
    let grown = pace.ceiling.filter(|_| fast).map_or(grown, |ceiling| grown.min(ceiling));
    let most = declared.map_or(ENOUGH, |rate| rate.a_second().min(ENOUGH));
    if grown >= most {
        (pace.learned, pace.ceiling) = (None, None);
    } else {
        pace.learned = Some(grown);
    }
    pace.grown_at = Some(now);
    true
}

/// Something is tried again after an outage: one send, and then slowly up to where it was.
pub fn restart(pace: &mut PaceRow, declared: Option<&Rate>, now: DateTime<Utc>) {
    let known = pace.learned.or(declared.map(Rate::a_second));
    // A pace that had only just begun again says nothing about what is borne.
    pace.ceiling = pace.ceiling.or(known.filter(|rate| *rate > FIRST));
    pace.learned = Some(known.map_or(FIRST, |rate| rate.min(FIRST)));
    pace.tokens = pace.tokens.max(1.0);
    pace.counted_at = now;
    pace.slowed_at = Some(now);
    pace.grown_at = Some(now);
}

/// What a batch of results says about the pace of one destination.
#[derive(Default)]
struct Heard {
    taken: bool,
    too_much: Vec<(DateTime<Utc>, Option<Duration>)>,
}

fn heard(batch: &[Finished]) -> HashMap<&str, Heard> {
    let mut all: HashMap<&str, Heard> = HashMap::new();
    for finished in batch {
        match &finished.ended.outcome {
            Outcome::NotSent { proof: Proof::Throttled, retry_after } => {
                let told = (finished.claimed_at, retry_after.map(Duration::from_secs));
                all.entry(&finished.destination).or_default().too_much.push(told);
            }
            Outcome::Sent { .. } | Outcome::Refused { .. } => {
                all.entry(&finished.destination).or_default().taken = true;
            }
            Outcome::NotSent { .. } | Outcome::Ambiguous { .. } => {}
        }
    }
    all
}

/// Learns from results. In transactions of its own: it is a matter of comfort, and must hold up no result.
pub(super) async fn learn(pool: &PgPool, fleet: &Fleet, clock: &Arc<dyn Clock>, batch: &[Finished]) {
    for (name, heard) in heard(batch) {
        let Some(served) = fleet.get(name) else { continue };
        if heard.too_much.is_empty() && !(heard.taken && served.pace.is_learned()) {
            continue;
        }
        if let Err(error) = learn_one(pool, served, &**clock, &heard).await {
            tracing::warn!(destination = %name, %error, "the pace was not adjusted");
        }
    }
}

async fn learn_one(pool: &PgPool, served: &Served, clock: &dyn Clock, heard: &Heard) -> Result<(), StoreError> {
    let rate = served.config.limits.rate.as_ref();
    let name = &served.config.name;
    let longest = served.config.limits.backoff_max;
    let mut tx = pool.begin().await?;
    let (mut pace, now) = store::paces::lock(&mut tx, name, full(rate), clock.sql_now()).await?;
    let before = pace.clone();
    // The pace that was counted up to now is the one that was in force up to now.
    allowance(&mut pace, rate, now);
    for (claimed_at, wait) in &heard.too_much {
        slow(&mut pace, rate, *claimed_at, now, wait.map(|wait| wait.min(longest)));
    }
    let grew = heard.too_much.is_empty() && grow(&mut pace, rate, now);
    if grew || !heard.too_much.is_empty() {
        store::paces::write(&mut tx, name, &pace).await?;
    }
    tx.commit().await?;
    served.pace.learned(pace.learned.is_some());
    if before.slowed_at != pace.slowed_at {
        let until = pace.not_before.map(|at| at.to_rfc3339());
        tracing::warn!(destination = %name, a_second = pace.learned, not_before = until, "the destination says that this is too much");
    }
    Ok(())
}

/// Tokens of a row that is made.
pub(super) fn full(declared: Option<&Rate>) -> f64 {
    declared.map_or(1.0, Rate::burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds((seconds * 1000.0).round() as i64)
    }

    fn fresh() -> PaceRow {
        PaceRow {
            tokens: 1.0,
            counted_at: at(0.0),
            learned: None,
            ceiling: None,
            slowed_at: None,
            grown_at: None,
            not_before: None,
        }
    }

    fn rate(per_second: f64, burst: u32) -> Rate {
        Rate { per_second: Some(per_second), per_minute: None, burst: Some(burst) }
    }

    #[test]
    fn without_a_limit_nothing_is_limited() {
        assert_eq!(allowance(&mut fresh(), None, at(1.0)), usize::MAX);
    }

    #[test]
    fn a_declared_rate_gives_its_burst_and_then_its_pace() {
        let declared = rate(2.0, 5);
        let mut pace = PaceRow { tokens: full(Some(&declared)), ..fresh() };
        assert_eq!(allowance(&mut pace, Some(&declared), at(0.0)), 5);
        spend(&mut pace, 5);
        assert_eq!(allowance(&mut pace, Some(&declared), at(0.4)), 0);
        assert_eq!(allowance(&mut pace, Some(&declared), at(1.0)), 2);
        assert_eq!(allowance(&mut pace, Some(&declared), at(900.0)), 5, "no more is saved up than the burst");
        let minute = Rate { per_second: None, per_minute: Some(30.0), burst: None };
        assert_eq!((minute.a_second(), minute.burst()), (0.5, 1.0));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let declared = rate(1.0, 10);
        let mut pace = PaceRow { tokens: 0.0, counted_at: at(100.0), ..fresh() };
        assert_eq!(allowance(&mut pace, Some(&declared), at(50.0)), 0);
        assert_eq!(allowance(&mut pace, Some(&declared), at(51.0)), 1, "and goes on from there");
    }

    #[test]
    fn one_flood_slows_down_once_and_the_longest_pause_counts() {
        let mut pace = fresh();
        let before = at(0.0);
        slow(&mut pace, None, before, at(1.0), Some(Duration::from_secs(30)));
        slow(&mut pace, None, before, at(1.1), Some(Duration::from_secs(5)));
        assert_eq!((pace.learned, pace.ceiling), (Some(FIRST), None));
        assert_eq!(pace.not_before, Some(at(31.0)));
        assert_eq!(allowance(&mut pace, None, at(30.0)), 0);
        assert_eq!(allowance(&mut pace, None, at(31.0)), 1);
    }

    #[test]
    fn it_doubles_up_to_the_ceiling_and_creeps_above_it() {
        let mut pace = fresh();
        slow(&mut pace, None, at(0.0), at(1.0), None);
        for second in 2..12 {
            assert!(grow(&mut pace, None, at(f64::from(second))));
            assert!(!grow(&mut pace, None, at(f64::from(second) + 0.5)), "once a second");
        }
        let fast = pace.learned.unwrap_or_default();
        assert!((30.0..33.0).contains(&fast), "{fast}");
        slow(&mut pace, None, at(12.0), at(12.1), None);
        assert_eq!(pace.learned, Some(fast * HALVED));
        assert_eq!(pace.ceiling, pace.learned);
        grow(&mut pace, None, at(14.0));
        assert_eq!(pace.learned, Some(fast * HALVED * SLOW));
        slow(&mut pace, None, at(15.0), at(15.1), None);
        assert_eq!(pace.learned, Some(fast * HALVED * SLOW * EASED));
    }

    #[test]
    fn what_limits_nothing_any_more_is_forgotten() {
        let mut pace = fresh();
        restart(&mut pace, None, at(0.0));
        for second in 1..60 {
            grow(&mut pace, None, at(f64::from(second)));
        }
        assert_eq!(pace.learned, None);
        let declared = rate(3.0, 3);
        restart(&mut pace, Some(&declared), at(100.0));
        assert_eq!(allowance(&mut pace, Some(&declared), at(100.0)), 1);
        for second in 101..110 {
            grow(&mut pace, Some(&declared), at(f64::from(second)));
        }
        assert_eq!(pace.learned, None, "the declared rate is reached");
    }

    #[test]
    fn probe_after_probe_of_a_long_outage_leaves_it_free_to_grow_again() {
        let mut pace = fresh();
        for minute in 0..60 {
            restart(&mut pace, None, at(f64::from(minute) * 60.0));
        }
        assert_eq!((pace.learned, pace.ceiling), (Some(FIRST), None));
    }

    #[test]
    fn no_flood_stops_it_for_ever() {
        let mut pace = fresh();
        for second in 0..1000 {
            slow(&mut pace, None, at(f64::from(second) + 0.5), at(f64::from(second) + 1.0), None);
        }
        assert_eq!(pace.learned, Some(SLOWEST));
    }
}
