//! What follows from a state: where its queue row stands, which escalations are open, which marks it bears.
//!
//! Called by [`super::folding::settle`] only, inside its transaction.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    fleet::Policy,
    folding::{Case, Cause, after},
};
use crate::{
    domain::{
        evidence::Verdict,
        intent::InDoubt,
        outcome::{DoubtKind, Outcome},
        reason::Reason,
        rewind::LOST,
        state::{End, Folded, State},
    },
    store::{
        self,
        attempts::AttemptRow,
        audits::Enrolment,
        error::StoreError,
        queue::{Waits, put, remove},
    },
};

/// Accepted, and then returned.
const BOUNCED: &str = "bounced";

/// What must be known about an intent for ever.
pub(super) fn marks(case: &Case, folded: &Folded) -> Vec<String> {
    let mut marks = case.intent.marks.clone();
    let mut add = |mark: &str| {
        if !marks.iter().any(|m| m == mark) {
            marks.push(mark.to_owned());
        }
    };
    if folded.duplicate {
        add("duplicate_found");
    }
    if told_otherwise(case, folded) {
        add("late_result");
    }
    if folded.end == Some(End::DeadlinePassed) {
        add("deadline_passed");
    }
    match case.returned() {
        Some(_) => add(BOUNCED),
        // Only a newer report takes it back.
        None if !case.reports.is_empty() => marks.retain(|mark| mark != BOUNCED),
        None => {}
    }
    marks
}

/// Somebody had been told that it was not sent, or that nobody would know.
fn told_otherwise(case: &Case, folded: &Folded) -> bool {
    folded.state == State::Sent && matches!(case.intent.state, State::Failed | State::Cancelled | State::Abandoned)
}

/// Puts the queue row where the state belongs.
pub(super) async fn queue(
    conn: &mut PgConnection,
    case: &Case,
    folded: &Folded,
    policy: &Policy,
    cause: &Cause<'_>,
) -> Result<(), StoreError> {
    let intent = &case.intent;
    match folded.state {
        State::Held => put(conn, intent.id, Waits::Person, intent.due_at, intent.deadline).await,
        State::Pending => {
            let due = cause.not_before.unwrap_or(intent.now).max(intent.due_at);
            put(conn, intent.id, Waits::Send, due, intent.deadline).await
        }
        State::InFlight => Ok(()),
        State::Unknown => {
            // A deadline that is still ahead is told to people; one that has passed ends no doubt.
            let ahead = intent.deadline.filter(|deadline| *deadline > intent.now);
            match next_question(case, folded, policy, cause) {
                Some(at) => ask(conn, intent.id, at, ahead, cause).await,
                None => put(conn, intent.id, Waits::Person, intent.now, ahead).await,
            }
        }
        State::Abandoned => match next_question(case, folded, policy, cause) {
            Some(at) => ask(conn, intent.id, at, None, cause).await,
            None => remove(conn, intent.id).await,
        },
        State::Sent | State::Failed | State::Cancelled => remove(conn, intent.id).await,
    }
}

async fn ask(
    conn: &mut PgConnection,
    id: Uuid,
    at: DateTime<Utc>,
    deadline: Option<DateTime<Utc>>,
    cause: &Cause<'_>,
) -> Result<(), StoreError> {
    put(conn, id, Waits::Ask, at, deadline).await?;
    if cause.urgent { store::queue::asking::hurry(conn, id).await } else { Ok(()) }
}

/// Has every generation asked about to which an ended intent handed bytes, where more than one attempt did: a duplicate
/// reports success twice, and nobody else would look.
pub(super) async fn audit(
    conn: &mut PgConnection,
    case: &Case,
    folded: &Folded,
    policy: &Policy,
) -> Result<(), StoreError> {
    let ended = matches!(folded.state, State::Sent | State::Failed) && case.intent.state != folded.state;
    let Some(asking) = policy.asking.as_ref().filter(|_| ended) else { return Ok(()) };
    let made: Vec<&AttemptRow> = case.attempts.iter().filter(|a| handed_over(a)).collect();
    if made.len() < 2 {
        return Ok(());
    }
    let effect = case.effect_of();
    let over = made.iter().map(|a| closure_of(a)).max().unwrap_or(case.intent.now);
    let mut generations: Vec<&str> = made.iter().map(|a| a.generation.as_str()).collect();
    generations.sort_unstable();
    generations.dedup();
    for generation in generations {
        let there = made.iter().filter(|a| a.generation == generation);
        let own = there.clone().find(|a| Some(a.attempt.number) == effect).or(there.clone().next_back());
        let (Some(own), Some(first)) = (own, there.clone().next()) else { continue };
        let enrolment = Enrolment {
            intent_id: case.intent.id,
            destination: &case.intent.destination,
            generation,
            attempt: own.attempt.number,
            sent_from: first.claimed_at,
            sent_until: over,
            due_at: after(over, asking.lag),
            now: Some(case.intent.now),
        };
        store::audits::repeat(conn, &enrolment).await?;
    }
    Ok(())
}

/// From when no byte of an attempt can leave any more.
pub(super) fn closure_of(attempt: &AttemptRow) -> DateTime<Utc> {
    attempt.closure_at.unwrap_or(attempt.lease_until).max(attempt.lease_until)
}

/// At least one byte of it may have reached the downstream.
fn handed_over(attempt: &AttemptRow) -> bool {
    let bytes = attempt.ended.as_ref().is_some_and(|ended| ended.report.bytes_handed > 0);
    bytes || attempt.attempt.outcome.as_ref().is_none_or(|outcome| !outcome.is_hard_negative())
}

/// Whether it can be asked about now.
pub(super) fn can_be_asked(case: &Case, folded: &Folded, policy: &Policy) -> bool {
    next_question(case, folded, policy, &Cause::of("")).is_some()
}

/// When to ask next; `None` when asking has ended or was never possible.
fn next_question(case: &Case, folded: &Folded, policy: &Policy, cause: &Cause<'_>) -> Option<DateTime<Utc>> {
    if cause.asking_ended.is_some() {
        return None;
    }
    let now = case.intent.now;
    let doubtful = folded.doubtful.first().and_then(|n| case.attempt(*n)).or_else(|| case.attempts.last())?;
    let expired = case.intent.deadline.is_some_and(|deadline| deadline <= now);
    if policy.replays && !expired && doubtful.replay_until.is_some_and(|until| until > now) && !poisoned(case) {
        return Some(cause.ask_at.unwrap_or(now));
    }
    let asking = policy.asking.as_ref()?;
    let horizon = after(doubtful.claimed_at, asking.horizon);
    let at = cause.ask_at.unwrap_or(now);
    (at < horizon).then_some(at)
}

/// The downstream replays a stored failure: no further replay.
pub(super) fn poisoned(case: &Case) -> bool {
    case.attempts
        .iter()
        .any(|a| matches!(a.attempt.outcome, Some(Outcome::Ambiguous { doubt: DoubtKind::PoisonedKey })))
}

/// Opens what the state asks for and closes what it has answered.
pub(super) async fn escalate(
    conn: &mut PgConnection,
    case: &Case,
    folded: &Folded,
    policy: &Policy,
    cause: &Cause<'_>,
) -> Result<(), StoreError> {
    let wanted = reasons(case, folded, policy, cause);
    let standing = why_failed(folded);
    let answered: Vec<String> = Reason::ALL
        .into_iter()
        .filter(|reason| !reason.outlives_a_move() && !wanted.contains(reason) && answers(folded.state, *reason))
        // More evidence about what has failed does not answer why it failed.
        .filter(|reason| standing != Some(*reason))
        .map(|reason| reason.as_str().to_owned())
        .collect();
    let now = case.intent.now;
    let resolution = format!("the intent is {}", folded.state.as_str());
    store::escalations::close(conn, case.intent.id, &answered, cause.actor, &resolution, now).await?;
    for reason in wanted {
        let summary = summary(reason, case, cause);
        let detail = json!({ "attempt": case.intent.attempt, "doubtful": folded.doubtful });
        if folded.state == State::Unknown && folded.doubtful == [LOST] {
            // One rewind is one cause, however many intents and destinations it concerns.
            let group = Reason::LedgerRewound.as_str();
            store::escalations::raise_in(conn, case.intent.id, reason, group, &summary, &detail, now).await?;
        } else {
            store::escalations::raise(conn, case.intent.id, reason, &summary, &detail, now).await?;
        }
    }
    Ok(())
}

/// Whether being in this state answers an open question of this reason.
fn answers(state: State, reason: Reason) -> bool {
    match state {
        State::InFlight => false,
        State::Unknown => matches!(
            reason,
            Reason::AttemptsExhausted | Reason::Refused | Reason::ApprovalRequired | Reason::Unsupported
        ),
        State::Held => !matches!(reason, Reason::ApprovalRequired | Reason::RepeatFlagged | Reason::DeadlineNear),
        State::Pending => !matches!(reason, Reason::DeadlineNear | Reason::AttemptsExhausted),
        State::Sent | State::Failed | State::Cancelled | State::Abandoned => true,
    }
}

fn reasons(case: &Case, folded: &Folded, policy: &Policy, cause: &Cause<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let moved = case.intent.state != folded.state;
    if folded.duplicate && !case.intent.marks.iter().any(|m| m == "duplicate_found") {
        reasons.push(Reason::DuplicateFound);
    }
    if told_otherwise(case, folded) {
        reasons.push(Reason::LateResult);
    }
    if case.returned().is_some() && !case.intent.marks.iter().any(|m| m == BOUNCED) {
        reasons.push(Reason::Bounced);
    }
    match folded.state {
        State::Unknown => reasons.extend(doubt_reason(case, folded, policy, cause)),
        State::Failed if moved => reasons.extend(why_failed(folded)),
        State::Cancelled if moved && folded.end == Some(End::DeadlinePassed) => reasons.push(Reason::DeadlinePassed),
        State::Held if moved => reasons.push(Reason::ApprovalRequired),
        State::Held
        | State::Pending
        | State::InFlight
        | State::Sent
        | State::Failed
        | State::Cancelled
        | State::Abandoned => {}
    }
    reasons
}

/// Why people are told that it failed.
fn why_failed(folded: &Folded) -> Option<Reason> {
    match folded.end {
        Some(End::Refused) => Some(Reason::Refused),
        Some(End::Unsupported) => Some(Reason::Unsupported),
        Some(End::Exhausted) => Some(Reason::AttemptsExhausted),
        // Whoever said so knows.
        Some(End::SaidAbsent | End::Rejected | End::Cancelled | End::DeadlinePassed) | None => None,
    }
}

/// Why a person is needed for a doubt now, if one is.
fn doubt_reason(case: &Case, folded: &Folded, policy: &Policy, cause: &Cause<'_>) -> Option<Reason> {
    let newest = case.look_ups.last().map(|(_, l)| &l.verdict);
    if matches!(newest, Some(Verdict::Conflict { .. })) {
        return Some(Reason::Conflict);
    }
    if poisoned(case) && policy.asking.is_none() {
        return Some(Reason::PoisonedKey);
    }
    if matches!(policy.in_doubt, InDoubt::Person | InDoubt::Compensate) {
        return Some(Reason::NoLookUp);
    }
    if next_question(case, folded, policy, cause).is_none() {
        return Some(if case.look_ups.is_empty() { Reason::NoLookUp } else { Reason::Inconclusive });
    }
    let asked = u32::try_from(case.look_ups.len()).unwrap_or(u32::MAX);
    let budget = policy.asking.as_ref().map_or(u32::MAX, |asking| asking.questions);
    let needs_a_person = matches!(newest, Some(Verdict::AbsentByLag { resend: false, .. }));
    (asked >= budget || needs_a_person).then_some(Reason::Inconclusive)
}

fn summary(reason: Reason, case: &Case, cause: &Cause<'_>) -> String {
    let intent = &case.intent;
    let what = format!("{} to {}", intent.reference.to_uppercase(), intent.destination);
    let told = match reason {
        Reason::ApprovalRequired => format!("{what} waits for approval"),
        Reason::RepeatFlagged => format!("{what} looks like a repeat"),
        Reason::NoLookUp => format!("{what} may have been sent; {} cannot be asked", intent.destination),
        Reason::Inconclusive => format!("{what} may have been sent; asking has not settled it"),
        Reason::PoisonedKey => format!("{what}: the downstream replays a stored failure"),
        Reason::Conflict => format!("{what}: the downstream shows something that no row explains"),
        Reason::AttemptsExhausted => format!("{what}: no attempts left"),
        Reason::Refused => format!("{what} was refused by the downstream"),
        Reason::Unsupported => format!("{what} cannot be sent through this channel"),
        Reason::DeadlineNear => format!("{what} is not settled and its deadline is near"),
        Reason::DeadlinePassed => format!("{what} was not sent before its deadline"),
        Reason::DuplicateFound => format!("{what} arrived more than once"),
        Reason::SentNotVisible => format!("{what} was answered as sent and is not visible downstream"),
        Reason::Bounced => format!("{what} was accepted and then returned"),
        Reason::LateResult => format!("{what} was sent after all, though somebody had been told otherwise"),
        Reason::DestinationParked => format!("{} is parked", intent.destination),
        Reason::OrphanSighting => format!("{what}: evidence without a row"),
        Reason::LedgerRewound => "the database lost history".to_owned(),
    };
    match &cause.detail {
        Some(detail) => format!("{told}: {detail}"),
        None => told,
    }
}
