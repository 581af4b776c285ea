use chrono::{DateTime, Duration, Utc};

use super::*;
use crate::domain::outcome::{DoubtKind, Proof};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap_or_default()
}

fn attempt(number: i32, outcome: Option<Outcome>) -> Attempt {
    Attempt { number, kind: AttemptKind::Send, outcome }
}

fn sent() -> Option<Outcome> {
    Some(Outcome::Sent { provider_id: None })
}

fn lost() -> Option<Outcome> {
    Some(Outcome::Ambiguous { doubt: DoubtKind::ConnectionLost })
}

fn refused() -> Option<Outcome> {
    Some(Outcome::Refused { code: 422 })
}

fn not_sent() -> Option<Outcome> {
    Some(Outcome::NotSent { proof: Proof::NotConnected, retry_after: None })
}

fn absent(attempt: i32, minutes: i64) -> Asked {
    Asked { attempt, newest: attempt, verdict: Verdict::Absent { valid_until: now() + Duration::minutes(minutes) } }
}

fn found(attempt: i32) -> Asked {
    Asked { attempt, newest: attempt, verdict: Verdict::Found { provider_id: None, weak: false } }
}

fn history<'a>(attempts: &'a [Attempt], asked: &'a [Asked], statements: &'a [Statement]) -> History<'a> {
    History {
        attempts,
        asked,
        sightings: &[],
        statements,
        lost: Lost::Nothing,
        in_doubt: InDoubt::Ask,
        needs_approval: false,
        deadline_passed: false,
        attempts_allowed: 5,
        now: now(),
    }
}

#[test]
fn a_refusal_after_a_doubt_is_not_failed() {
    let folded = fold(&history(&[attempt(1, lost()), attempt(2, refused())], &[absent(1, -1)], &[]));
    assert_eq!((folded.state, folded.holds_effect, folded.doubtful), (State::Unknown, true, vec![1]));
    // A proof that is still fresh was asked for before the downstream said no, which may mean "I have it already".
    let attempts = [attempt(1, lost()), attempt(2, refused())];
    assert_eq!(fold(&history(&attempts, &[absent(1, 5)], &[])).doubtful, [1]);
    let asked_since = Asked { newest: 2, ..absent(1, 5) };
    assert_eq!(fold(&history(&attempts, &[asked_since], &[])).state, State::Failed);
}

#[test]
fn a_proof_of_absence_lets_it_be_sent_again_only_while_it_is_fresh() {
    let attempts = [attempt(1, lost())];
    assert_eq!(fold(&history(&attempts, &[absent(1, 5)], &[])).state, State::Pending);
    assert_eq!(fold(&history(&attempts, &[absent(1, 0)], &[])).state, State::Unknown);
}

#[test]
fn a_proof_about_one_attempt_says_nothing_about_another() {
    let folded = fold(&history(&[attempt(1, lost()), attempt(2, lost())], &[absent(2, 5)], &[]));
    assert_eq!((folded.state, folded.doubtful), (State::Unknown, vec![1]));
}

#[test]
fn a_conflict_after_an_absence_puts_it_in_doubt_again() {
    let conflict = Asked { attempt: 1, newest: 1, verdict: Verdict::Conflict { why: String::new() } };
    assert_eq!(fold(&history(&[attempt(1, lost())], &[absent(1, 5), conflict], &[])).state, State::Unknown);
}

#[test]
fn evidence_of_an_effect_wins_over_everything_that_people_said() {
    let statements = [Statement::Absent { upto: 1 }, Statement::Closed, Statement::Cancelled];
    assert_eq!(fold(&history(&[attempt(1, lost())], &[found(1)], &statements)).state, State::Sent);
    assert_eq!(fold(&history(&[attempt(1, sent())], &[], &statements)).state, State::Sent);
}

#[test]
fn a_late_result_of_the_first_attempt_beside_the_second_is_a_duplicate() {
    assert!(fold(&history(&[attempt(1, sent()), attempt(2, sent())], &[], &[])).duplicate);
    assert!(fold(&history(&[attempt(1, lost()), attempt(2, sent())], &[found(1)], &[])).duplicate);
    let replayed = [attempt(1, lost()), Attempt { number: 2, kind: AttemptKind::Replay, outcome: sent() }];
    assert!(!fold(&history(&replayed, &[found(1)], &[])).duplicate);
}

#[test]
fn closing_or_cancelling_in_doubt_abandons_and_keeps_the_effect() {
    for statement in [Statement::Closed, Statement::Cancelled] {
        let folded = fold(&history(&[attempt(1, lost())], &[absent(1, 5)], &[statement]));
        assert_eq!((folded.state, folded.holds_effect), (State::Abandoned, true));
    }
}

#[test]
fn a_persons_absent_is_failed_and_frees_the_effect_and_send_again_is_separate() {
    let attempts = [attempt(1, lost())];
    let said = [Statement::Absent { upto: 1 }];
    let folded = fold(&history(&attempts, &[], &said));
    assert_eq!((folded.state, folded.holds_effect, folded.end), (State::Failed, false, Some(End::SaidAbsent)));
    let again = [Statement::Absent { upto: 1 }, Statement::SendAgain { upto: 1 }];
    assert_eq!(fold(&history(&attempts, &[], &again)).state, State::Pending);
    let second = [attempt(1, lost()), attempt(2, lost())];
    assert_eq!(fold(&history(&second, &[], &again)).state, State::Unknown);
}

#[test]
fn a_hard_negative_end_frees_the_effect_and_proven_absence_does_not() {
    let folded = fold(&history(&[attempt(1, not_sent()), attempt(2, refused())], &[], &[]));
    assert_eq!((folded.state, folded.holds_effect), (State::Failed, false));
    let mut exhausted = history(&[], &[], &[]);
    let attempts = [attempt(1, lost())];
    let asked = [absent(1, 5)];
    exhausted.attempts = &attempts;
    exhausted.asked = &asked;
    exhausted.attempts_allowed = 1;
    let folded = fold(&exhausted);
    assert_eq!((folded.state, folded.holds_effect, folded.end), (State::Failed, true, Some(End::Exhausted)));
}

#[test]
fn nothing_attempted_is_held_pending_or_cancelled() {
    let mut nothing = history(&[], &[], &[]);
    assert_eq!(fold(&nothing).state, State::Pending);
    nothing.needs_approval = true;
    assert_eq!(fold(&nothing).state, State::Held);
    nothing.deadline_passed = true;
    let folded = fold(&nothing);
    assert_eq!((folded.state, folded.holds_effect, folded.end), (State::Cancelled, false, Some(End::DeadlinePassed)));
}

#[test]
fn the_deadline_in_doubt_leaves_it_unknown() {
    let attempts = [attempt(1, lost())];
    let mut history = history(&attempts, &[], &[]);
    history.deadline_passed = true;
    assert_eq!(fold(&history).state, State::Unknown);
}

#[test]
fn refused_connections_spend_no_attempt() {
    let attempts: Vec<Attempt> = (1..=40).map(|n| attempt(n, not_sent())).collect();
    let folded = fold(&history(&attempts, &[], &[]));
    assert_eq!((folded.state, folded.spent), (State::Pending, 0));
}

#[test]
fn at_most_once_closes_and_harmless_goes_on() {
    let attempts = [attempt(1, lost())];
    let mut history = history(&attempts, &[], &[]);
    history.in_doubt = InDoubt::AtMostOnce;
    assert_eq!(fold(&history).state, State::Abandoned);
    history.in_doubt = InDoubt::Harmless;
    assert_eq!(fold(&history).state, State::Pending);
}

#[test]
fn where_twice_is_harmless_a_doubt_still_never_ends_as_failed() {
    let refused_later = [attempt(1, lost()), attempt(2, refused())];
    let mut history = history(&refused_later, &[], &[]);
    history.in_doubt = InDoubt::Harmless;
    let folded = fold(&history);
    assert_eq!((folded.state, folded.end, folded.doubtful), (State::Unknown, None, vec![1]));
    let exhausted: Vec<Attempt> = (1..=5).map(|n| attempt(n, lost())).collect();
    history.attempts = &exhausted;
    assert_eq!(fold(&history).state, State::Unknown);
    let once = [attempt(1, lost())];
    history.attempts = &once;
    assert_eq!((fold(&history).state, fold(&history).doubtful), (State::Pending, vec![]));
    history.deadline_passed = true;
    assert_eq!(fold(&history).state, State::Unknown);
}

#[test]
fn a_proof_of_absence_sends_again_only_where_asking_decides() {
    let (attempts, proof) = ([attempt(1, lost())], [absent(1, 60)]);
    let mut history = history(&attempts, &proof, &[]);
    for (policy, state) in [
        (InDoubt::Ask, State::Pending),
        (InDoubt::Person, State::Unknown),
        (InDoubt::Compensate, State::Unknown),
        (InDoubt::AtMostOnce, State::Abandoned),
    ] {
        history.in_doubt = policy;
        assert_eq!(fold(&history).state, state, "{policy:?}");
    }
}

#[test]
fn an_open_attempt_is_in_flight_whatever_else_is_in_doubt() {
    assert_eq!(fold(&history(&[attempt(1, lost()), attempt(2, None)], &[absent(1, -5)], &[])).state, State::InFlight);
}

#[test]
fn evidence_alone_does_not_send_again_what_has_failed() {
    // Its place in the budget is free again.
    let attempts = [attempt(1, not_sent())];
    let with = |statements| fold_from(State::Failed, &history(&attempts, &[], statements)).state;
    assert_eq!(fold(&history(&attempts, &[], &[])).state, State::Pending);
    assert_eq!(with(&[]), State::Failed);
    assert_eq!(with(&[Statement::SendAgain { upto: 1 }]), State::Pending);
    let found_it = fold_from(State::Failed, &history(&attempts, &[found(1)], &[]));
    assert_eq!(found_it.state, State::Sent);
    assert_eq!(fold_from(State::Unknown, &history(&attempts, &[], &[])).state, State::Pending);
}

fn lost_since_the_beginning<'a>(attempts: &'a [Attempt], asked: &'a [Asked], said: &'a [Statement]) -> History<'a> {
    History { lost: Lost::Attempts { asked_from: 0, stated_from: 0 }, ..history(attempts, asked, said) }
}

#[test]
fn what_a_rewind_may_have_taken_is_in_doubt_until_it_is_proven_absent() {
    let folded = fold(&lost_since_the_beginning(&[], &[], &[]));
    assert_eq!((folded.state, folded.holds_effect, folded.doubtful), (State::Unknown, true, vec![LOST]));
    assert_eq!(fold(&lost_since_the_beginning(&[], &[absent(LOST, 5)], &[])).state, State::Pending);
    assert_eq!(fold(&lost_since_the_beginning(&[], &[absent(LOST, -1)], &[])).state, State::Unknown);
    let found = fold(&lost_since_the_beginning(&[], &[found(LOST)], &[]));
    assert_eq!((found.state, found.duplicate), (State::Sent, false));
}

#[test]
fn what_was_asked_or_said_before_a_rewind_says_nothing_about_what_it_took() {
    let (attempts, asked, said) = ([attempt(1, lost())], [absent(LOST, 5)], [Statement::Absent { upto: 1 }]);
    let mut before = lost_since_the_beginning(&attempts, &asked, &said);
    assert_eq!(fold(&before).state, State::Failed);
    before.lost = Lost::Attempts { asked_from: 1, stated_from: 1 };
    assert_eq!((fold(&before).state, fold(&before).doubtful), (State::Unknown, vec![LOST]));
}

#[test]
fn a_rewind_puts_what_was_held_or_may_not_be_repeated_before_a_question_and_closes_nothing() {
    let mut held = lost_since_the_beginning(&[], &[], &[]);
    held.needs_approval = true;
    assert_eq!(fold(&held).state, State::Unknown);
    for policy in [InDoubt::Ask, InDoubt::Person, InDoubt::AtMostOnce, InDoubt::Compensate] {
        held.in_doubt = policy;
        assert_eq!(fold(&held).state, State::Unknown, "{policy:?}");
    }
    held.in_doubt = InDoubt::Harmless;
    assert_eq!(fold(&held).state, State::Held);
    let closed = [Statement::Closed];
    let folded = fold(&lost_since_the_beginning(&[], &[], &closed));
    assert_eq!((folded.state, folded.holds_effect), (State::Abandoned, true));
}

#[test]
fn a_refused_attempt_after_a_rewind_keeps_its_effect_until_the_lost_ones_are_said_to_be_absent() {
    let attempts = [attempt(1, refused())];
    assert_eq!(fold(&lost_since_the_beginning(&attempts, &[absent(LOST, 5)], &[])).state, State::Unknown);
    let asked_since = [Asked { newest: 1, ..absent(LOST, 5) }];
    let folded = fold(&lost_since_the_beginning(&attempts, &asked_since, &[]));
    assert_eq!((folded.state, folded.holds_effect), (State::Failed, true));
    let said = [Statement::Absent { upto: 1 }];
    assert!(!fold(&lost_since_the_beginning(&attempts, &asked_since, &said)).holds_effect);
}

#[test]
fn one_effect_that_is_found_twice_is_no_duplicate() {
    let attempts = [attempt(1, lost())];
    let both = [found(LOST), found(1)];
    assert!(!fold(&lost_since_the_beginning(&attempts, &both, &[])).duplicate);
    assert!(fold(&lost_since_the_beginning(&[attempt(1, sent()), attempt(2, sent())], &[found(LOST)], &[])).duplicate);
}
