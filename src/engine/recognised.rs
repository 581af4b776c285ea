//! Names the failure modes that a move has just met and contained. Only what this move appended counts, so that an intent
//! which is looked at again is not counted again.

use super::folding::{Case, Cause, LookUpTold};
use crate::{
    domain::{
        evidence::Attempt,
        failure_mode::FailureMode,
        intent::Identity,
        key::{Keyring, Spelling},
        outcome::{DoubtKind, Outcome, Stage},
        state::{Folded, State},
    },
    store::attempts::AttemptRow,
};

/// What this move met. `marks` are those after the move.
pub(super) fn met(case: &Case, folded: &Folded, marks: &[String], cause: &Cause<'_>) -> Vec<FailureMode> {
    let mut met = Vec::new();
    if cause.appended > 0 {
        if case.intent.state == State::InFlight
            && let Some(newest) = case.attempts.last()
        {
            met.extend(of_attempt(newest, folded));
        }
        if key_forgotten(case) {
            met.push(FailureMode::KeyLifetimeOver);
        }
    }
    let new = |mark: &str| marks.iter().any(|m| m == mark) && !case.intent.marks.iter().any(|m| m == mark);
    if new("duplicate_found") {
        met.push(FailureMode::DuplicateFound);
        if case.attempts.iter().filter(|a| handed(a)).count() == 1 {
            met.push(FailureMode::RetriedRetry);
        }
    }
    if new("late_result") {
        met.push(FailureMode::LateResult);
    }
    met
}

/// The attempt that has just ended.
fn of_attempt(newest: &AttemptRow, folded: &Folded) -> Vec<FailureMode> {
    let mut met = Vec::new();
    let Attempt { number, outcome, .. } = &newest.attempt;
    if *number > 1 && handed(newest) {
        met.push(FailureMode::MeteredAttempt);
    }
    match outcome {
        Some(Outcome::Ambiguous { doubt }) => met.extend(of_doubt(*doubt)),
        Some(Outcome::Refused { .. }) if folded.state == State::Unknown => met.push(FailureMode::UnknownAsFailed),
        Some(Outcome::Sent { .. } | Outcome::Refused { .. } | Outcome::NotSent { .. }) | None => {}
    }
    met
}

fn of_doubt(doubt: DoubtKind) -> Option<FailureMode> {
    match doubt {
        // A rewind is counted once, where it is noticed.
        DoubtKind::NoReply | DoubtKind::ConnectionLost | DoubtKind::HistoryLost => None,
        DoubtKind::UnclearReply => Some(FailureMode::UnrecognisedError),
        DoubtKind::PoisonedKey => Some(FailureMode::PoisonedKey),
        DoubtKind::Interrupted => Some(FailureMode::DrainDeadline),
        DoubtKind::LeaseExpired => Some(FailureMode::LeaseExpired),
        DoubtKind::WorkerDead => Some(FailureMode::WorkerDead),
    }
}

/// Bytes of it may have reached the downstream as a whole.
fn handed(attempt: &AttemptRow) -> bool {
    attempt.ended.as_ref().is_some_and(|ended| match &ended.outcome {
        Outcome::Sent { .. } | Outcome::Refused { .. } | Outcome::Ambiguous { .. } => true,
        Outcome::NotSent { .. } => ended.report.stage == Stage::Replied,
    })
}

/// The first question after a replay would have been a new effect.
fn key_forgotten(case: &Case) -> bool {
    let over = |attempt: i32, told: &LookUpTold| {
        case.attempt(attempt).and_then(|row| row.replay_until).is_some_and(|until| until <= told.asked_at)
    };
    let mut after_life = case.look_ups.iter().filter(|(attempt, told)| over(*attempt, told));
    let first = after_life.next();
    first.is_some()
        && after_life.next().is_none()
        && case.look_ups.last().is_some_and(|(attempt, told)| over(*attempt, told))
}

/// Whether today's secrets would give an intent another key than the one pinned to it. A secret that is gone says nothing.
pub(super) fn key_regenerated(
    keyring: &Keyring,
    region: &str,
    identity: &Identity,
    scope: &str,
    (key, kid): (&str, &str),
) -> bool {
    keyring.derive(Some(kid), region, identity, scope, Spelling::default()).is_ok_and(|derived| derived.text != key)
}
