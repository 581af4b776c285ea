//! What each statement leads to.

use settled::{
    domain::{intent::InDoubt, outcome::Proof, state::State},
    engine::resolution::{ActError, Target, Words},
    store::requests::{EnqueueError, Verdict},
};

use super::desk::{act, act_on, acts, ada, bob, cannot, does, escalation, say};
use crate::support::ledger::{Ledger, lost, not_sent, refused, sent, unaskable};

#[tokio::test]
async fn a_person_who_says_that_it_was_sent_settles_it() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    assert_eq!(ledger.open_escalations(id).await, ["no_look_up"]);
    let done = does(&ledger, &ada(), id, "sent").await;
    assert_eq!((done.state, done.holds_effect, done.repeated), (Some("sent"), Some(true), false));
    assert_eq!(ledger.fold_state(id).await, State::Sent);
    assert!(ledger.open_escalations(id).await.is_empty());
    assert_eq!(acts(&ledger, id).await, ["sent"]);
    let told = ledger.journal(id, "act").await.pop().unwrap();
    assert_eq!(told.0, "responder:ada");
    assert_eq!(told.1["evidence"], "seen in the bank's list");
}

#[tokio::test]
async fn an_absence_is_a_fact_it_fails_the_intent_frees_the_effect_and_sends_nothing() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let done = does(&ledger, &ada(), id, "absent").await;
    assert_eq!((done.state, done.holds_effect), (Some("failed"), Some(false)));
    assert_eq!(ledger.fold_state(id).await, State::Failed);
    let queued: i64 = sqlx::query_scalar("select count(*) from settled.queue").fetch_one(ledger.pool()).await.unwrap();
    assert_eq!(queued, 0);
    // The effect is free: the same reference under a new run is a new intent.
    let again = ledger.ask_for(&ledger.call("INV-1")).await.unwrap();
    assert_eq!(again.verdict, Verdict::Accepted);
    assert_ne!(again.intent_id, id);
}

#[tokio::test]
async fn closing_without_knowing_keeps_the_effect() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let done = does(&ledger, &ada(), id, "close").await;
    assert_eq!((done.state, done.holds_effect), (Some("abandoned"), Some(true)));
    let again = ledger.ask_for(&ledger.call("INV-1")).await.unwrap();
    assert_eq!((again.verdict, again.intent_id), (Verdict::AlreadyRequested, id));
    // Whoever learns more says so later.
    assert_eq!(does(&ledger, &bob(), id, "absent").await.state, Some("failed"));
}

#[tokio::test]
async fn a_cancel_ends_what_was_never_attempted_and_abandons_what_is_in_doubt() {
    let ledger = Ledger::new().await;
    let fresh = ledger.enqueue("INV-1").await;
    let done = does(&ledger, &ada(), fresh, "cancel").await;
    assert_eq!((done.state, done.holds_effect), (Some("cancelled"), Some(false)));
    let doubtful = ledger.enqueue("INV-2").await;
    ledger.attempt(doubtful, lost()).await;
    let done = does(&ledger, &ada(), doubtful, "cancel").await;
    assert_eq!((done.state, done.holds_effect), (Some("abandoned"), Some(true)));
    let deferred = ledger.enqueue("INV-3").await;
    assert_eq!(ledger.attempt(deferred, not_sent(Proof::NotConnected)).await, State::Pending);
    assert_eq!(does(&ledger, &ada(), deferred, "cancel").await.holds_effect, Some(false));
    for id in [fresh, doubtful, deferred] {
        ledger.fold_state(id).await;
        assert!(matches!(cannot(&ledger, &bob(), id, "cancel").await, ActError::NotPossible(_)));
    }
}

#[tokio::test]
async fn what_its_producer_cancelled_stays_cancelled_whatever_people_say_about_it() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    let mut conn = ledger.pool().acquire().await.unwrap();
    settled::store::requests::cancel(&mut conn, id, "not wanted", Some("acme"), Some("producer:tests")).await.unwrap();
    drop(conn);
    assert_eq!(ledger.fold_state(id).await, State::Cancelled);
    does(&ledger, &ada(), id, "comment").await;
    assert_eq!(ledger.fold_state(id).await, State::Cancelled);
    let row: i64 =
        sqlx::query_scalar("select id from settled.journal where intent_id = $1 and kind = 'act' order by id limit 1")
            .bind(id)
            .fetch_one(ledger.pool())
            .await
            .unwrap();
    let words = Words { statement: Some(row), ..say("retract") };
    let refused = act(&ledger, &super::desk::root(), Target::Intent(id), "retract", words).await.unwrap_err();
    assert!(matches!(refused, ActError::NotPossible(words) if words.contains("producer")));
}

#[tokio::test]
async fn only_unknown_intents_are_closed() {
    let ledger = Ledger::new().await;
    let pending = ledger.enqueue("INV-1").await;
    let sent_one = ledger.enqueue("INV-2").await;
    ledger.attempt(sent_one, sent("p-1")).await;
    let failed = ledger.enqueue("INV-3").await;
    ledger.attempt(failed, refused(422)).await;
    for id in [pending, sent_one, failed] {
        assert!(matches!(cannot(&ledger, &ada(), id, "close").await, ActError::NotPossible(_)));
    }
    assert!(matches!(cannot(&ledger, &ada(), sent_one, "sent").await, ActError::NotPossible(_)));
    assert!(matches!(cannot(&ledger, &ada(), sent_one, "absent").await, ActError::NotPossible(_)));
    assert!(matches!(cannot(&ledger, &ada(), failed, "absent").await, ActError::NotPossible(_)), "nothing to free");
}

#[tokio::test]
async fn an_absence_frees_what_its_deadline_cancelled_while_it_was_proven_absent_by_a_machine() {
    let ledger = Ledger::new().await;
    // Where a person decides, a machine's proof would leave it unknown.
    let mut asked = unaskable("asked");
    asked.in_doubt = Some(InDoubt::Ask);
    ledger.destination(asked).await;
    let mut call = ledger.call("INV-1");
    call.options.deadline = Some(ledger.now() + chrono::TimeDelta::minutes(2));
    let id = ledger.ask_for(&call).await.unwrap().intent_id;
    ledger.attempt(id, lost()).await;
    ledger.look_up_says_absent(id, ledger.now() + chrono::TimeDelta::minutes(10)).await;
    ledger.clock.advance(std::time::Duration::from_secs(300));
    assert_eq!(ledger.settle(id).await, State::Cancelled);
    assert!(matches!(
        ledger.ask_for(&ledger.call("INV-1")).await,
        Err(EnqueueError::EffectHeld(earlier)) if earlier.intent_id == id
    ));
    let done = does(&ledger, &ada(), id, "absent").await;
    assert_eq!((done.state, done.holds_effect), (Some("failed"), Some(false)));
}

#[tokio::test]
async fn evidence_that_comes_after_a_persons_absence_wins_and_is_reported() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    let row = ledger.claim(id).await;
    ledger.report(id, &row, lost()).await;
    does(&ledger, &ada(), id, "absent").await;
    assert_eq!(ledger.report(id, &row, sent("p-9")).await, State::Sent);
    assert_eq!(ledger.open_escalations(id).await, ["late_result"]);
    let case = ledger.case(id).await;
    assert_eq!(case.intent.provider_id.as_deref(), Some("p-9"));
    assert!(case.intent.holds_effect, "nobody had taken the effect, so it is held again");
    // It reports; a person has seen it.
    let reported = escalation(&ledger, id).await;
    let done = act(&ledger, &ada(), Target::Escalation(reported), "acknowledge", say("acknowledge")).await.unwrap();
    assert_eq!(done.words, "closed: acknowledged: because");
    assert!(ledger.open_escalations(id).await.is_empty());
    assert_eq!(ledger.fold_state(id).await, State::Sent);
}

#[tokio::test]
async fn what_asks_for_an_answer_cannot_be_acknowledged_away() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, lost()).await;
    let target = Target::Escalation(escalation(&ledger, id).await);
    let refused = act(&ledger, &ada(), target, "acknowledge", say("acknowledge")).await.unwrap_err();
    assert!(matches!(refused, ActError::NotPossible(words) if words.contains("close it without knowing")));
}

#[tokio::test]
async fn a_refused_intent_is_acknowledged_and_stays_failed() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    ledger.attempt(id, refused(422)).await;
    assert_eq!(ledger.open_escalations(id).await, ["refused"]);
    let target = Target::Escalation(escalation(&ledger, id).await);
    act(&ledger, &ada(), target, "acknowledge", say("acknowledge")).await.unwrap();
    assert!(ledger.open_escalations(id).await.is_empty());
    assert_eq!(ledger.fold_state(id).await, State::Failed);
}

#[tokio::test]
async fn a_conflict_about_a_request_stays_open_until_somebody_has_seen_it() {
    let ledger = Ledger::new().await;
    let first = ledger.call("INV-1");
    let id = ledger.ask_for(&first).await.unwrap().intent_id;
    let mut other = ledger.call("INV-1");
    other.payload = r#"{"text":"something else"}"#.to_owned();
    let refused = settled::engine::admission::admit(ledger.pool(), &other).await;
    assert!(matches!(refused, Err(EnqueueError::Conflict { .. })));
    ledger.attempt(id, sent("p-1")).await;
    assert_eq!(ledger.open_escalations(id).await, ["conflict"], "sending the first one answers nothing");
    let target = Target::Escalation(escalation(&ledger, id).await);
    act(&ledger, &ada(), target, "acknowledge", say("acknowledge")).await.unwrap();
    assert!(ledger.open_escalations(id).await.is_empty());
}

#[tokio::test]
async fn a_parked_destination_is_unparked_by_an_admin_of_all_tenants_only() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    assert_eq!(ledger.attempt(id, not_sent(Proof::Parked)).await, State::Pending);
    let parked: uuid::Uuid = sqlx::query_scalar(
        "select id from settled.escalations where reason = 'destination_parked' and closed_at is null",
    )
    .fetch_one(ledger.pool())
    .await
    .unwrap();
    let target = Target::Escalation(parked);
    assert!(matches!(act(&ledger, &ada(), target, "unpark", say("unpark")).await, Err(ActError::Forbidden(_))));
    let mut local = super::desk::root();
    local.tenant = Some("acme".to_owned());
    assert!(matches!(act(&ledger, &local, target, "unpark", say("unpark")).await, Err(ActError::Forbidden(_))));
    assert!(matches!(
        act(&ledger, &ada(), target, "acknowledge", say("acknowledge")).await,
        Err(ActError::NotPossible(_))
    ));
    let root = super::desk::root();
    let done = act_on(&ledger, &root, target, "unpark", say("unpark"), Some(0)).await.unwrap();
    assert_eq!(done.words, "closed: un-parked: because");
    let twice = act_on(&ledger, &root, target, "unpark", say("unpark"), Some(0)).await.unwrap();
    assert!(twice.repeated);
    let still: i64 = sqlx::query_scalar("select count(*) from settled.destinations where parked_at is not null")
        .fetch_one(ledger.pool())
        .await
        .unwrap();
    assert_eq!(still, 0);
}
