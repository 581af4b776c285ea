//! What waits for a person before it is sent.

use std::time::Duration;

use chrono::TimeDelta;
use settled::{
    config::destination::Approval,
    domain::state::State,
    engine::resolution::{ActError, Target},
    store::requests::Verdict,
};
use uuid::Uuid;

use super::desk::{act, ada, bob, cannot, decide, does, escalation, say};
use crate::support::ledger::{Ledger, sent, unaskable};

async fn held() -> (Ledger, Uuid) {
    let ledger = Ledger::empty().await;
    let mut config = unaskable("careful");
    config.approval = Approval::Always;
    ledger.destination(config).await;
    let mut call = ledger.call("INV-1");
    call.options.deadline = Some(ledger.now() + TimeDelta::hours(1));
    let receipt = ledger.ask_for(&call).await.unwrap();
    assert_eq!((receipt.verdict, receipt.state.as_str()), (Verdict::Accepted, "held"));
    (ledger, receipt.intent_id)
}

#[tokio::test]
async fn an_approval_lets_it_be_sent() {
    let (ledger, id) = held().await;
    assert_eq!(ledger.open_escalations(id).await, ["approval_required"]);
    let target = Target::Escalation(escalation(&ledger, id).await);
    let done = act(&ledger, &ada(), target, "approve", say("approve")).await.unwrap();
    assert_eq!(done.state, Some("pending"));
    assert!(ledger.open_escalations(id).await.is_empty());
    assert_eq!(ledger.attempt(id, sent("p-1")).await, State::Sent);
    assert!(matches!(cannot(&ledger, &bob(), id, "reject").await, ActError::NotPossible(_)));
}

#[tokio::test]
async fn a_rejection_ends_it_and_frees_the_reference() {
    let (ledger, id) = held().await;
    let done = does(&ledger, &ada(), id, "reject").await;
    assert_eq!((done.state, done.holds_effect), (Some("cancelled"), Some(false)));
    assert!(ledger.open_escalations(id).await.is_empty());
    assert_eq!(ledger.ask_for(&ledger.call("INV-1")).await.unwrap().verdict, Verdict::Accepted);
}

#[tokio::test]
async fn what_was_rejected_is_held_again_when_somebody_sends_it_again() {
    let (ledger, id) = held().await;
    does(&ledger, &ada(), id, "reject").await;
    does(&ledger, &bob(), id, "send_again").await;
    ledger.clock.advance(Duration::from_secs(11));
    decide(&ledger).await;
    assert_eq!(ledger.fold_state(id).await, State::Held);
    assert_eq!(ledger.open_escalations(id).await, ["approval_required"]);
}

#[tokio::test]
async fn nobody_decides_in_time_and_it_expires_aloud() {
    let (ledger, id) = held().await;
    ledger.clock.advance(Duration::from_secs(3700));
    assert!(
        matches!(cannot(&ledger, &ada(), id, "approve").await, ActError::NotPossible(words) if words.contains("deadline"))
    );
    assert_eq!(ledger.settle(id).await, State::Cancelled);
    assert_eq!(ledger.open_escalations(id).await, ["deadline_passed"]);
}

#[tokio::test]
async fn a_held_one_that_somebody_has_sent_by_hand_is_sent_and_never_again() {
    let (ledger, id) = held().await;
    let done = does(&ledger, &ada(), id, "sent").await;
    assert_eq!(done.state, Some("sent"));
    // Withdrawn, it waits for approval again: a statement is no approval.
    let words = settled::engine::resolution::Words { statement: done.journal_id, ..say("retract") };
    let back = act(&ledger, &ada(), Target::Intent(id), "retract", words).await.unwrap();
    assert_eq!(back.state, Some("held"));
    assert_eq!(ledger.fold_state(id).await, State::Held);
}
