//! How long a proof of absence holds, and what becomes of evidence that comes before or after the next send.

use std::sync::Arc;

use chrono::TimeDelta;
use settled::{
    demo::fakes::{
        faults::{Fault, Stage},
        ledger_of_effects::Arrived,
        webhook::Webhook,
    },
    domain::{evidence::Verdict, intent::InDoubt, state::State},
    engine::{results::Finished, runner::Step},
};
use uuid::Uuid;

use super::doubt::{Doubt, PAYLOAD, Setting};
use crate::support::{
    fragments::webhook,
    ledger::{Ledger, lost, unaskable},
    world::World,
};

#[tokio::test]
async fn a_proof_that_goes_stale_before_the_send_is_asked_for_again() {
    let mut doubt = Doubt::bracketed().await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "pending");
    // The proof lives as long as the lag, ten seconds.
    doubt.world.turn(11);
    doubt.world.dispatch().await;
    assert_eq!(doubt.world.state(doubt.id).await, "unknown");
    doubt.nothing_was_sent();
    for _ in 0..3 {
        doubt.world.ask().await;
        doubt.world.dispatch().await;
        doubt.world.turn(6);
    }
    assert_eq!(doubt.world.state(doubt.id).await, "sent", "{:#?}", doubt.world.verdicts(doubt.id).await);
    assert_eq!(doubt.receiver.effects().count_by_reference("INV-2"), 1);
}

#[tokio::test]
async fn two_lost_attempts_are_proven_absent_together_and_sent_again() {
    let mut doubt = Doubt::bracketed().await;
    doubt.receiver.faults().for_reference("INV-2", Fault::ResetBeforeActing);
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    doubt.world.dispatch().await;
    assert_eq!(doubt.world.state(doubt.id).await, "unknown", "{:#?}", doubt.world.verdicts(doubt.id).await);
    // The second attempt's lease ends as well, something younger goes out, and the first proof is long stale.
    doubt.world.turn(30);
    doubt.world.enqueue("erp", "INV-4", PAYLOAD).await;
    doubt.world.dispatch().await;
    for _ in 0..60 {
        doubt.world.turn(1);
        doubt.world.ask().await;
        doubt.world.dispatch().await;
    }
    assert_eq!(doubt.world.state(doubt.id).await, "sent", "{:#?}", doubt.world.verdicts(doubt.id).await);
    assert_eq!(doubt.receiver.effects().count_by_reference("INV-2"), 1);
}

#[tokio::test]
async fn an_index_that_lags_longer_than_declared_keeps_it_open_until_it_shows() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    // From here on the index lags: a minute, while ten seconds are declared.
    receiver.effects().hold();
    receiver.faults().next(Fault::LoseReply);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    world.turn(15);
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    for _ in 0..6 {
        world.turn(10);
        world.ask().await;
        world.dispatch().await;
        assert_eq!(world.state(id).await, "unknown", "{:#?}", world.verdicts(id).await);
    }
    let verdicts = world.verdicts(id).await;
    assert!(
        verdicts.iter().any(|v| v.contains("a younger witness that is known as sent was not seen")),
        "{verdicts:#?}"
    );
    receiver.effects().release();
    world.turn(900);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 1);
    assert_eq!(receiver.faults().count(Stage::Act), 3);
}

/// INV-2 was done and its reply is in hand, unwritten, when the lease ends; the downstream hides it, and it is proven
/// absent against the downstream's own word about its order.
async fn wrongly_absent() -> (Arc<Webhook>, World, Uuid, Vec<Finished>) {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    receiver.effects().hold_reference("INV-2");
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    let late = world.send_only().await;
    assert_eq!(late.len(), 1);
    world.turn(30);
    world.reaper.step().await.unwrap();
    assert_eq!(world.state(id).await, "unknown");
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    world.ask().await;
    world.turn(6);
    world.ask().await;
    assert_eq!(world.state(id).await, "pending", "{:#?}", world.verdicts(id).await);
    (receiver, world, id, late)
}

#[tokio::test]
async fn evidence_before_the_new_send_cancels_it() {
    let (receiver, mut world, id, late) = wrongly_absent().await;
    world.write(late).await;
    assert_eq!(world.state(id).await, "sent");
    world.dispatch().await;
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 1);
    assert!(world.reasons(id).await.is_empty());
}

#[tokio::test]
async fn evidence_after_the_new_send_is_a_duplicate_that_somebody_is_told_of() {
    let (receiver, mut world, id, late) = wrongly_absent().await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    world.write(late).await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(world.reasons(id).await, ["duplicate_found"]);
    let marks = world.text("select array_to_string(marks, ',') from settled.intents where id = $1", id).await;
    assert_eq!(marks.as_deref(), Some("duplicate_found"));
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 2);
}

#[tokio::test]
async fn evidence_while_the_new_send_is_open_is_kept_and_told_when_it_ends() {
    let (_receiver, mut world, id, late) = wrongly_absent().await;
    let second = world.send_only().await;
    assert_eq!(world.state(id).await, "in_flight");
    world.write(late).await;
    world.write(second).await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(world.reasons(id).await, ["duplicate_found"]);
}

#[tokio::test]
async fn two_found_is_sent_and_a_duplicate() {
    let mut doubt = Doubt::new(Setting { fault: Fault::LoseReply, ..Setting::default() }).await;
    let key = doubt.world.text("select key from settled.intents where id = $1", doubt.id).await;
    doubt.receiver.effects().record(Arrived { key, reference: "INV-2".to_owned(), ..Arrived::default() });
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "sent", "{:#?}", doubt.world.verdicts(doubt.id).await);
    assert_eq!(doubt.world.reasons(doubt.id).await, ["duplicate_found"]);
    doubt.nothing_was_sent();
}

/// INV-2 was done and its reply lost; the downstream hides it, and it is wrongly proven absent. Then this reply.
async fn refused_after_a_wrong_proof(code: u16) -> (Doubt, bool) {
    let setting = Setting { fault: Fault::LoseReply, ..Setting::default() };
    let mut doubt = Doubt::prepared(setting, |receiver| receiver.effects().hold_reference("INV-2")).await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "pending");
    doubt.receiver.faults().next(Fault::Status { code, act: false });
    doubt.world.dispatch().await;
    let unknown = doubt.world.state(doubt.id).await == "unknown";
    (doubt, unknown)
}

#[tokio::test]
async fn a_4xx_duplicate_after_a_lost_reply_is_not_failed() {
    for code in [400, 409, 422] {
        let (mut doubt, unknown) = refused_after_a_wrong_proof(code).await;
        assert!(unknown, "{code}: the proof was still fresh, and the downstream says no to the second one");
        doubt.receiver.effects().release();
        doubt.ask(3).await;
        assert_eq!(doubt.world.state(doubt.id).await, "sent", "{code}: {:#?}", doubt.world.verdicts(doubt.id).await);
        assert_eq!(doubt.receiver.effects().count_by_reference("INV-2"), 1);
    }
}

#[tokio::test]
async fn a_4xx_after_a_send_that_never_arrived_is_failed_once_it_was_asked_for_again() {
    let mut doubt = Doubt::bracketed().await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    doubt.receiver.faults().next(Fault::Status { code: 422, act: false });
    doubt.world.dispatch().await;
    assert_eq!(doubt.world.state(doubt.id).await, "unknown");
    doubt.world.turn(30);
    doubt.ask(2).await;
    assert_eq!(doubt.world.state(doubt.id).await, "failed", "{:#?}", doubt.world.verdicts(doubt.id).await);
    assert_eq!(doubt.world.reasons(doubt.id).await, ["refused"]);
}

/// Two reconcilers may ask about one attempt, and the first of them may be the last to write.
#[tokio::test]
async fn an_answer_that_was_slow_to_be_written_is_no_newer_than_its_question() {
    let ledger = Ledger::empty().await;
    let mut asked = unaskable("asked");
    asked.in_doubt = Some(InDoubt::Ask);
    ledger.destination(asked).await;
    let absent = || Verdict::Absent { valid_until: ledger.now() + TimeDelta::minutes(10) };
    let conflict = || Verdict::Conflict { why: "the reference under a strange key".to_owned() };
    let (first, second) = (ledger.now(), ledger.now() + TimeDelta::seconds(1));

    let doubted_at_first = ledger.enqueue("INV-1").await;
    ledger.attempt(doubted_at_first, lost()).await;
    assert_eq!(ledger.look_up_said(doubted_at_first, second, absent()).await, State::Pending);
    assert_eq!(ledger.look_up_said(doubted_at_first, first, conflict()).await, State::Pending);

    let doubted_at_last = ledger.enqueue("INV-2").await;
    ledger.attempt(doubted_at_last, lost()).await;
    assert_eq!(ledger.look_up_said(doubted_at_last, second, conflict()).await, State::Unknown);
    assert_eq!(ledger.look_up_said(doubted_at_last, first, absent()).await, State::Unknown);
}
