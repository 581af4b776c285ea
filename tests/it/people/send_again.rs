//! *Send again*: a decision that binds ten seconds later.

use std::time::Duration;

use chrono::TimeDelta;
use settled::{
    domain::{outcome::Proof, state::State},
    engine::resolution::{ActError, Target, Words},
    store::requests::Verdict,
};
use uuid::Uuid;

use super::desk::{act, acts, ada, bob, cannot, decide, decision_result, does, escalation, say};
use crate::support::ledger::{Ledger, lost, not_sent, refused, sent};

const HOLD: Duration = Duration::from_secs(11);

async fn key(ledger: &Ledger, id: Uuid) -> String {
    ledger.case(id).await.intent.key.expect("a key")
}

async fn revision(ledger: &Ledger, id: Uuid) -> i32 {
    sqlx::query_scalar("select revision from settled.intents where id = $1")
        .bind(id)
        .fetch_one(ledger.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn after_doubt_it_is_sent_again_under_the_same_key() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let before = key(&ledger, id).await;
    does(&ledger, &ada(), id, "absent").await;
    let done = does(&ledger, &ada(), id, "send_again").await;
    assert_eq!(done.state, Some("failed"), "a decision that does not bind yet moves nothing");
    assert_eq!(done.binds_at.unwrap().timestamp(), (ledger.now() + TimeDelta::seconds(10)).timestamp());
    assert_eq!(decide(&ledger).await, 0, "not before its time");
    ledger.clock.advance(HOLD);
    assert_eq!(decide(&ledger).await, 1);
    assert_eq!(decide(&ledger).await, 0, "once");
    assert_eq!(ledger.fold_state(id).await, State::Pending);
    assert_eq!(ledger.attempt(id, sent("p-2")).await, State::Sent);
    assert_eq!((key(&ledger, id).await, revision(&ledger, id).await), (before, 0));
    assert_eq!(acts(&ledger, id).await, ["absent", "send_again", "send_again_applied"]);
}

#[tokio::test]
async fn after_a_hard_no_it_is_sent_again_under_a_new_key() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    assert_eq!(ledger.attempt(id, refused(422)).await, State::Failed);
    let before = key(&ledger, id).await;
    does(&ledger, &ada(), id, "send_again").await;
    ledger.clock.advance(HOLD);
    decide(&ledger).await;
    assert_eq!(ledger.fold_state(id).await, State::Pending);
    assert!(ledger.case(id).await.intent.holds_effect, "the effect is taken again");
    ledger.attempt(id, sent("p-2")).await;
    assert_eq!(revision(&ledger, id).await, 1);
    assert_ne!(key(&ledger, id).await, before);
}

#[tokio::test]
async fn within_the_hold_anybody_can_stop_it_and_it_never_moves() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    does(&ledger, &ada(), id, "send_again").await;
    does(&ledger, &bob(), id, "stop").await;
    assert!(act(&ledger, &bob(), Target::Intent(id), "stop", say("stop")).await.unwrap().repeated);
    ledger.clock.advance(HOLD);
    assert_eq!(decide(&ledger).await, 0);
    assert_eq!(ledger.fold_state(id).await, State::Failed);
    assert!(!ledger.case(id).await.intent.holds_effect);
    // Decided anew, it binds.
    does(&ledger, &bob(), id, "send_again").await;
    ledger.clock.advance(HOLD);
    assert_eq!(decide(&ledger).await, 1);
    assert!(matches!(cannot(&ledger, &ada(), id, "stop").await, ActError::NotPossible(_)), "too late");
}

#[tokio::test]
async fn the_same_decision_twice_is_one_and_another_persons_is_told_of_it() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    let first = does(&ledger, &ada(), id, "send_again").await;
    let second = does(&ledger, &ada(), id, "send_again").await;
    assert!(second.repeated);
    assert_eq!(second.binds_at.map(|t| t.timestamp()), first.binds_at.map(|t| t.timestamp()));
    let ActError::Stale { who, what, .. } = cannot(&ledger, &bob(), id, "send_again").await else { panic!() };
    assert_eq!((who.as_str(), what.as_str()), ("responder:ada", "decided to send it again: because"));
    ledger.clock.advance(HOLD);
    assert_eq!(decide(&ledger).await, 1);
}

#[tokio::test]
async fn the_reference_must_be_typed_and_be_the_intents() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    let typed = |reference: Option<&str>| Words { reference: reference.map(str::to_owned), ..say("send_again") };
    for wrong in [None, Some("INV-10"), Some("")] {
        let refused = act(&ledger, &ada(), Target::Intent(id), "send_again", typed(wrong)).await.unwrap_err();
        assert!(matches!(refused, ActError::Incomplete { field: "reference", .. }), "{wrong:?}: {refused}");
    }
    act(&ledger, &ada(), Target::Intent(id), "send_again", typed(Some("inv-1"))).await.unwrap();
}

#[tokio::test]
async fn what_is_in_doubt_must_be_said_absent_first() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    assert!(
        matches!(cannot(&ledger, &ada(), id, "send_again").await, ActError::NotPossible(words) if words.contains("absent"))
    );
    does(&ledger, &ada(), id, "close").await;
    assert!(matches!(cannot(&ledger, &ada(), id, "send_again").await, ActError::NotPossible(_)));
}

#[tokio::test]
async fn once_somebody_else_has_asked_for_it_anew_it_is_re_requested_as_that() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    does(&ledger, &ada(), id, "absent").await;
    let other = ledger.ask_for(&ledger.call("INV-1")).await.unwrap();
    assert_eq!(other.verdict, Verdict::Accepted);
    let refused = cannot(&ledger, &ada(), id, "send_again").await;
    assert_eq!(refused.to_string(), format!("re-requested as {}", other.intent_id));
}

#[tokio::test]
async fn what_is_asked_for_anew_within_the_hold_wins() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    does(&ledger, &ada(), id, "send_again").await;
    let other = ledger.ask_for(&ledger.call("INV-1")).await.unwrap();
    assert_eq!(other.verdict, Verdict::Accepted);
    ledger.clock.advance(HOLD);
    assert_eq!(decide(&ledger).await, 1);
    assert_eq!(decision_result(&ledger, id).await, Some(format!("re-requested as {}", other.intent_id)));
    assert_eq!(ledger.fold_state(id).await, State::Failed);
}

#[tokio::test]
async fn after_its_deadline_it_needs_a_new_one() {
    let ledger = Ledger::new().await;
    let mut call = ledger.call("INV-1");
    call.options.deadline = Some(ledger.now() + TimeDelta::minutes(2));
    let id = ledger.ask_for(&call).await.unwrap().intent_id;
    ledger.clock.advance(Duration::from_secs(180));
    assert_eq!(ledger.settle(id).await, State::Cancelled);
    assert_eq!(ledger.open_escalations(id).await, ["deadline_passed"]);
    let refused = cannot(&ledger, &ada(), id, "send_again").await;
    assert!(matches!(refused, ActError::Incomplete { field: "deadline", .. }), "{refused}");
    let deadline = ledger.now() + TimeDelta::hours(1);
    let words = Words { deadline: Some(deadline), ..say("send_again") };
    let target = Target::Escalation(escalation(&ledger, id).await);
    act(&ledger, &ada(), target, "send_again", words).await.unwrap();
    ledger.clock.advance(HOLD);
    decide(&ledger).await;
    assert_eq!(ledger.fold_state(id).await, State::Pending);
    assert_eq!(ledger.case(id).await.intent.deadline.unwrap().timestamp(), deadline.timestamp());
    assert!(ledger.open_escalations(id).await.is_empty());
}

#[tokio::test]
async fn a_purged_payload_cannot_be_sent_again() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    sqlx::query("delete from settled.payloads").execute(ledger.pool()).await.unwrap();
    assert!(
        matches!(cannot(&ledger, &ada(), id, "send_again").await, ActError::NotPossible(words) if words.contains("purged"))
    );
}

#[tokio::test]
async fn what_used_up_its_attempts_gets_new_ones_and_asks_nobody_any_more() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    let mut state = State::Pending;
    while state == State::Pending {
        ledger.clock.advance(Duration::from_secs(4000));
        state = ledger.attempt(id, not_sent(Proof::Deferred)).await;
    }
    assert_eq!(state, State::Failed);
    assert_eq!(ledger.open_escalations(id).await, ["attempts_exhausted"]);
    does(&ledger, &ada(), id, "send_again").await;
    ledger.clock.advance(HOLD);
    decide(&ledger).await;
    assert_eq!(ledger.fold_state(id).await, State::Pending);
    assert!(ledger.open_escalations(id).await.is_empty());
}
