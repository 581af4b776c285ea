//! What an answer means for an audit: over, or asked again. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    domain::{absence::Judged, evidence::Verdict},
    engine::folding::after,
    store::audits::Taken,
};

/// When a sample is asked, in parts of the lag after its end. Half of it must be among them: what is not visible then leaves
/// no room in the declared lag.
const PARTS: [f64; 6] = [1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 1.0];

/// How an audit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Exactly one, as expected.
    One,
    /// More than one.
    Several,
    /// Answered as sent, and not there.
    NotVisible,
    /// Not there, and nobody said that it was.
    None,
    /// Something that no row explains.
    Unexplained,
    /// It could not be found out.
    NotAsked,
}

impl End {
    /// The word in the column and the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Several => "several",
            Self::NotVisible => "not_visible",
            Self::None => "none",
            Self::Unexplained => "unexplained",
            Self::NotAsked => "not_asked",
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Ask(DateTime<Utc>),
    Over(End),
}

/// What the ledger expects of an audit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// The effect must be there: sent, by this attempt.
    pub there: bool,
    /// The declared lag.
    pub lag: std::time::Duration,
    /// Answers after which it is given up.
    pub questions: u32,
}

/// When a sample that ended then is asked first.
pub(in crate::engine) fn first(sent_until: DateTime<Utc>, lag: std::time::Duration) -> DateTime<Utc> {
    after(sent_until, lag.mul_f64(PARTS[0]))
}

pub(super) fn next(
    taken: &Taken,
    judged: &Judged,
    expected: Expected,
    asked_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Next {
    let ripe = after(taken.sent_until, expected.lag);
    match &judged.verdict {
        Verdict::Duplicate { .. } => Next::Over(End::Several),
        Verdict::Conflict { .. } => Next::Over(End::Unexplained),
        // A second one may still become visible.
        Verdict::Found { .. } if asked_at < ripe => Next::Ask(ripe.max(now)),
        Verdict::Found { .. } => Next::Over(End::One),
        Verdict::Absent { .. } | Verdict::AbsentByLag { .. } if expected.there => Next::Over(End::NotVisible),
        Verdict::Absent { .. } | Verdict::AbsentByLag { .. } => Next::Over(End::None),
        Verdict::Inconclusive { .. } => {
            let asked = u32::try_from(taken.asked).unwrap_or(u32::MAX).saturating_add(1);
            match judged.ask_again_at {
                Some(at) if asked < expected.questions => Next::Ask(early(taken, expected, now).unwrap_or(at)),
                Some(_) | None => Next::Over(End::NotAsked),
            }
        }
    }
}

/// The next part of the lag, for a sample that is not ripe.
fn early(taken: &Taken, expected: Expected, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let parts = PARTS.iter().map(|part| after(taken.sent_until, expected.lag.mul_f64(*part)));
    let mut parts = parts.filter(|at| *at > now + TimeDelta::milliseconds(1));
    if taken.kind == "sample" { parts.next() } else { None }
}

/// Whether the first sight of a sample says how long it took: it must have been looked for from early on.
pub(super) fn measures(taken: &Taken, lag: std::time::Duration, asked_at: DateTime<Utc>) -> bool {
    taken.kind == "sample" && (taken.asked > 0 || asked_at <= after(taken.sent_until, lag / 2))
}
