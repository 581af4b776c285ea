//! State is a fold over all evidence about all attempts and over what people stated. The order of arrival cannot lose
//! anything, and no single event decides.
//!
//! Called by the engine, inside the transaction that holds the intent's row; the same function runs in the model search.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    evidence::{Attempt, AttemptKind, Statement, Verdict},
    intent::InDoubt,
    outcome::Outcome,
    rewind::LOST,
};

/// Where an intent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for approval.
    Held,
    /// May be sent, now or at its time.
    Pending,
    /// An attempt is open.
    InFlight,
    /// The effect exists.
    Sent,
    /// Ended, and no effect is known.
    Failed,
    /// It may have happened.
    Unknown,
    /// Ended before it was sent, by a person, a producer or the deadline.
    Cancelled,
    /// Closed without knowing; may have been sent.
    Abandoned,
}

impl State {
    /// All states, in the order of the table in the documentation.
    pub const ALL: [Self; 8] = [
        Self::Held,
        Self::Pending,
        Self::InFlight,
        Self::Sent,
        Self::Failed,
        Self::Unknown,
        Self::Cancelled,
        Self::Abandoned,
    ];

    /// The word used in SQL, API and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Pending => "pending",
            Self::InFlight => "in_flight",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Nothing more happens by itself, except that evidence may still arrive.
    pub fn is_settled(self) -> bool {
        match self {
            Self::Sent | Self::Failed | Self::Cancelled | Self::Abandoned => true,
            Self::Held | Self::Pending | Self::InFlight | Self::Unknown => false,
        }
    }

    /// Whether a move to `next` is legal. Postgres refuses the others as well (`settled.legal_move`).
    pub fn may_become(self, next: Self) -> bool {
        use State::{Abandoned, Cancelled, Failed, Held, InFlight, Pending, Sent, Unknown};
        match self {
            Held => matches!(next, Pending | Cancelled | Sent | Failed | Unknown | Abandoned),
            Pending => matches!(next, Held | InFlight | Cancelled | Failed | Sent | Unknown | Abandoned),
            InFlight => matches!(next, Sent | Failed | Pending | Unknown | Cancelled | Abandoned),
            Unknown => matches!(next, Held | Sent | Pending | Failed | Abandoned | Cancelled | InFlight),
            // What has ended moves on by evidence, and by a person who sends again or withdraws a statement.
            Failed => matches!(next, Pending | Held | Sent | Unknown | Cancelled | Abandoned),
            Cancelled => matches!(next, Held | Sent | Unknown | Pending | Failed | Abandoned),
            Abandoned => matches!(next, Held | Sent | Unknown | Failed | Cancelled | Pending),
            Sent => matches!(next, Held | Unknown | Failed | Pending | Cancelled | Abandoned),
        }
    }
}

/// A verdict of asking, about one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The attempt it is about.
    pub attempt: i32,
    /// The newest attempt when it was asked.
    pub newest: i32,
    /// What asking concluded.
    pub verdict: Verdict,
}

/// Attempts that the database may have forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// None: no rewind concerns this intent.
    Nothing,
    /// There may be some, asked about under the number [`LOST`]. Only what was asked and stated since speaks about them: the
    /// entries of `asked` and `statements` from these positions on.
    Attempts {
        /// First verdict since.
        asked_from: usize,
        /// First statement since.
        stated_from: usize,
    },
}

/// Everything the fold reads. `statements` come without the retracted ones, in the order they were made.
#[derive(Debug, Clone)]
pub struct History<'a> {
    /// All attempts, by number.
    pub attempts: &'a [Attempt],
    /// All verdicts, oldest first.
    pub asked: &'a [Asked],
    /// Evidence of an effect for an attempt that no row knows, or by a sighting: the attempt number where it is marked.
    pub sightings: &'a [Option<i32>],
    /// What people stated and decided.
    pub statements: &'a [Statement],
    /// Attempts that no row knows because the database lost history.
    pub lost: Lost,
    /// The destination's policy.
    pub in_doubt: InDoubt,
    /// The intent needs approval (its policy said so at admission).
    pub needs_approval: bool,
    /// The deadline has gone by.
    pub deadline_passed: bool,
    /// Attempts that may begin a conversation.
    pub attempts_allowed: u32,
    /// Database time.
    pub now: DateTime<Utc>,
}

/// Why an intent ended without a known effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The downstream said no.
    Refused,
    /// The channel cannot send this payload.
    Unsupported,
    /// No attempts left.
    Exhausted,
    /// A person said that it is absent.
    SaidAbsent,
    /// Approval was refused.
    Rejected,
    /// Cancelled by a person or its producer.
    Cancelled,
    /// The deadline passed.
    DeadlinePassed,
}

/// What the fold says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The state.
    pub state: State,
    /// Whether nobody else may ask for the effect.
    pub holds_effect: bool,
    /// More than one effect was seen.
    pub duplicate: bool,
    /// Attempts in doubt without proof, oldest first; [`LOST`] stands for those that a rewind took.
    pub doubtful: Vec<i32>,
    /// Why it ended, where it ended without effect.
    pub end: Option<End>,
    /// Attempts that count against the budget.
    pub spent: u32,
}

/// Folds all evidence into a state.
pub fn fold(history: &History<'_>) -> Folded {
    let effects = effects_seen(history);
    let duplicate = effects.len() > 1 || history.asked.iter().any(|a| matches!(a.verdict, Verdict::Duplicate { .. }));
    let mut doubtful = doubtful(history);
    let decided = Decided::read(history.statements);
    let spent = spent(history.attempts, decided.reopened_upto);
    let said_sent = history.statements.iter().any(|s| matches!(s, Statement::Sent));
    let (state, end) = if said_sent || !effects.is_empty() || duplicate {
        (State::Sent, None)
    } else if history.attempts.iter().any(|a| a.outcome.is_none()) {
        (State::InFlight, None)
    } else if decided.closed
        && (lost_in_doubt(history) || history.attempts.iter().any(|a| ambiguous(a) && !said_absent(history, a.number)))
    {
        (State::Abandoned, None)
    } else if !doubtful.is_empty() {
        match history.in_doubt {
            // An attempt that may never have been made is no reason to close it as perhaps sent.
            InDoubt::AtMostOnce if doubtful != [LOST] => (State::Abandoned, None),
            InDoubt::AtMostOnce | InDoubt::Ask | InDoubt::Person | InDoubt::Compensate => (State::Unknown, None),
            InDoubt::Harmless => match without_doubt(history, &decided, spent) {
                going_on @ (State::Held | State::Pending, _) => {
                    doubtful.clear();
                    going_on
                }
                // Twice is harmless, but an end would say that it did not happen.
                (
                    State::InFlight
                    | State::Sent
                    | State::Failed
                    | State::Unknown
                    | State::Cancelled
                    | State::Abandoned,
                    _,
                ) => (State::Unknown, None),
            },
        }
    } else {
        without_doubt(history, &decided, spent)
    };
    Folded { state, holds_effect: holds_effect(history, state), duplicate, doubtful, end, spent }
}

/// The same, for an intent that stands in `from`. What has failed was told to people, so evidence alone does not send it
/// again: a late word that an attempt never began frees its place in the budget, and still only *send again* uses it.
pub fn fold_from(from: State, history: &History<'_>) -> Folded {
    let folded = fold(history);
    let reopened = Decided::read(history.statements).reopened_upto;
    let since = history.attempts.iter().any(|a| a.number > reopened);
    match (from, folded.state) {
        (State::Failed, State::Pending | State::Held) if since => {
            let state = State::Failed;
            Folded { state, end: Some(End::Exhausted), holds_effect: holds_effect(history, state), ..folded }
        }
        (_, State::Held | State::Pending | State::InFlight | State::Sent)
        | (_, State::Failed | State::Unknown | State::Cancelled | State::Abandoned) => folded,
    }
}

/// Rule 3 of the design: every attempt is hard-negative, proven absent, or said absent.
fn without_doubt(history: &History<'_>, decided: &Decided, spent: u32) -> (State, Option<End>) {
    let refusal = history.attempts.iter().filter(|a| a.number > decided.reopened_upto).find_map(|a| match &a.outcome {
        Some(Outcome::Refused { code: 0 }) => Some(End::Unsupported),
        Some(Outcome::Refused { .. }) => Some(End::Refused),
        Some(Outcome::Sent { .. } | Outcome::NotSent { .. } | Outcome::Ambiguous { .. }) | None => None,
    });
    let failed = |end| (State::Failed, Some(end));
    if decided.rejected {
        (State::Cancelled, Some(End::Rejected))
    } else if decided.closed {
        (State::Cancelled, Some(End::Cancelled))
    } else if let Some(end) = refusal {
        failed(end)
    } else if decided.said_absent_upto > decided.reopened_upto {
        failed(End::SaidAbsent)
    } else if history.deadline_passed {
        (State::Cancelled, Some(End::DeadlinePassed))
    } else if spent >= history.attempts_allowed {
        failed(End::Exhausted)
    } else if history.needs_approval && !decided.approved {
        (State::Held, None)
    } else {
        (State::Pending, None)
    }
}

/// The decisions that still bind: *send again* opens a new chapter, what was said before it no longer ends the intent.
struct Decided {
    approved: bool,
    rejected: bool,
    closed: bool,
    /// Newest attempt that a person called absent; -1 for none.
    said_absent_upto: i32,
    /// Attempts up to this one belong to the chapter before *send again*; -1 before the first.
    reopened_upto: i32,
}

impl Decided {
    fn read(statements: &[Statement]) -> Self {
        let mut decided =
            Self { approved: false, rejected: false, closed: false, said_absent_upto: -1, reopened_upto: -1 };
        for statement in statements {
            match statement {
                Statement::Approved => decided.approved = true,
                Statement::Rejected => decided.rejected = true,
                Statement::Closed | Statement::Cancelled => decided.closed = true,
                Statement::Absent { upto } => {
                    // Who closed without knowing knows now.
                    decided.said_absent_upto = decided.said_absent_upto.max(*upto);
                    decided.closed = false;
                }
                Statement::SendAgain { upto } => {
                    decided.reopened_upto = *upto;
                    decided.closed = false;
                    decided.rejected = false;
                }
                Statement::Sent => {}
            }
        }
        decided
    }
}

fn ambiguous(attempt: &Attempt) -> bool {
    matches!(attempt.outcome, Some(Outcome::Ambiguous { .. }))
}

fn said_absent(history: &History<'_>, number: i32) -> bool {
    history.statements.iter().any(|s| matches!(s, Statement::Absent { upto } if *upto >= number))
}

/// Attempts that are ambiguous and not covered by a proof about *them* that is still valid.
fn doubtful(history: &History<'_>) -> Vec<i32> {
    // Where a person decides, or nothing is ever sent again, a proof informs; it does not send.
    let proof_suffices = match history.in_doubt {
        InDoubt::Ask | InDoubt::Harmless => true,
        InDoubt::Person | InDoubt::AtMostOnce | InDoubt::Compensate => false,
    };
    let lost = lost_in_doubt(history) && !(proof_suffices && lost_proven_absent(history));
    let known = history
        .attempts
        .iter()
        .filter(|a| ambiguous(a) && !said_absent(history, a.number))
        .filter(|a| !(proof_suffices && proven_absent(history, a.number)))
        .map(|a| a.number);
    lost.then_some(LOST).into_iter().chain(known).collect()
}

/// Attempts may have been lost, and nobody has said since that there was none.
fn lost_in_doubt(history: &History<'_>) -> bool {
    match history.lost {
        Lost::Nothing => false,
        Lost::Attempts { stated_from, .. } => {
            !history.statements.iter().skip(stated_from).any(|s| matches!(s, Statement::Absent { .. }))
        }
    }
}

fn lost_proven_absent(history: &History<'_>) -> bool {
    match history.lost {
        Lost::Nothing => true,
        Lost::Attempts { asked_from, .. } => proven(history, history.asked.get(asked_from..).unwrap_or_default(), LOST),
    }
}

/// The newest conclusive verdict about the attempt is an absence that has not gone stale, and the downstream has not said no
/// to a later attempt since: its no may mean that it has the earlier one already.
fn proven_absent(history: &History<'_>, number: i32) -> bool {
    proven(history, history.asked, number)
}

fn proven(history: &History<'_>, asked: &[Asked], number: i32) -> bool {
    let contradicted = |asked: &Asked| {
        let no = |a: &Attempt| matches!(a.outcome, Some(Outcome::Refused { code }) if code != 0);
        history.attempts.iter().any(|a| a.number > asked.newest && no(a))
    };
    asked
        .iter()
        .rev()
        .filter(|asked| asked.attempt == number)
        .find_map(|asked| match &asked.verdict {
            Verdict::Absent { valid_until } => Some(*valid_until > history.now && !contradicted(asked)),
            Verdict::AbsentByLag { valid_until, resend } => {
                Some(*resend && *valid_until > history.now && !contradicted(asked))
            }
            Verdict::Conflict { .. } | Verdict::Found { .. } | Verdict::Duplicate { .. } => Some(false),
            Verdict::Inconclusive { .. } => None,
        })
        .unwrap_or(false)
}

/// Distinct effects: a replay shares the effect of the send before it.
fn effects_seen(history: &History<'_>) -> Vec<i32> {
    let send_of = |number: i32| {
        history
            .attempts
            .iter()
            .filter(|a| a.kind == AttemptKind::Send && a.number <= number)
            .map(|a| a.number)
            .max()
            .unwrap_or(number)
    };
    let by_reply =
        history.attempts.iter().filter(|a| matches!(a.outcome, Some(Outcome::Sent { .. }))).map(|a| a.number);
    let by_asking = history
        .asked
        .iter()
        .filter(|a| matches!(a.verdict, Verdict::Found { .. } | Verdict::Duplicate { .. }))
        .map(|a| a.attempt);
    let newest = history.attempts.last().map_or(0, |a| a.number);
    let by_sighting = history.sightings.iter().map(|mark| mark.unwrap_or(newest));
    let mut effects: Vec<i32> = by_reply.chain(by_asking).chain(by_sighting).map(send_of).collect();
    effects.sort_unstable();
    effects.dedup();
    // What was found when lost attempts were asked about may be the effect of one that is known.
    if effects.len() > 1 {
        effects.retain(|number| *number != LOST);
    }
    effects
}

/// Attempts of this chapter that began a conversation. Replays ask; they do not count.
fn spent(attempts: &[Attempt], reopened_upto: i32) -> u32 {
    let counts = |a: &&Attempt| {
        a.number > reopened_upto
            && a.kind == AttemptKind::Send
            && !matches!(a.outcome, Some(Outcome::NotSent { proof, .. }) if proof.spends_no_attempt())
    };
    u32::try_from(attempts.iter().filter(counts).count()).unwrap_or(u32::MAX)
}

/// False only when the intent ended with no attempt open and every attempt is hard-negative or said absent by a person.
fn holds_effect(history: &History<'_>, state: State) -> bool {
    match state {
        State::Failed | State::Cancelled => {
            let free = |a: &Attempt| {
                a.outcome.as_ref().is_some_and(Outcome::is_hard_negative) || said_absent(history, a.number)
            };
            lost_in_doubt(history) || !history.attempts.iter().all(free)
        }
        State::Held | State::Pending | State::InFlight | State::Sent | State::Unknown | State::Abandoned => true,
    }
}

/// What the column `holds_effect` becomes by a move; `taken`: another intent holds the effect now.
///
/// `None`: the move would need an effect that somebody else has taken meanwhile. Only an act of a person can come to that
/// (send again, or the retraction of an "absent"), and it is refused: "re-requested as X". An effect that was *seen* is
/// written whoever holds it by now, and is taken back where it is free, or a repeat would be accepted after it.
pub fn holds_after(folded: &Folded, holds_now: bool, taken: bool) -> Option<bool> {
    match folded.state {
        State::Sent => Some(holds_now || !taken),
        State::Held
        | State::Pending
        | State::InFlight
        | State::Failed
        | State::Unknown
        | State::Cancelled
        | State::Abandoned => (!folded.holds_effect || holds_now || !taken).then_some(folded.holds_effect),
    }
}

#[cfg(test)]
mod tests;
