//! What nobody doubts is asked about all the same: there must be exactly one.

use std::sync::Arc;

use settled::{
    demo::fakes::{faults::Fault, ledger_of_effects::Arrived, webhook::Webhook},
    domain::{
        outcome::{DoubtKind, Outcome, Proof},
        state::State,
    },
};
use uuid::Uuid;

use super::{
    doubt::{Doubt, PAYLOAD, Setting},
    lag::sampled,
};
use crate::support::{
    fragments::webhook,
    ledger::{Ledger, destination, not_sent},
    world::World,
};

async fn sampling() -> (Arc<Webhook>, World) {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let world = World::new(&[sampled(&receiver)]).await;
    (receiver, world)
}

async fn send(world: &mut World, reference: &str) -> Uuid {
    let id = world.enqueue("erp", reference, PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    id
}

async fn marks(world: &World, id: Uuid) -> Option<String> {
    world.text("select array_to_string(marks, ',') from settled.intents where id = $1", id).await
}

async fn result(world: &World, id: Uuid) -> Option<String> {
    world.text("select string_agg(coalesce(result, 'open'), ',') from settled.audits where intent_id = $1", id).await
}

/// The key of an intent, once more downstream.
async fn copy(world: &World, receiver: &Webhook, id: Uuid, reference: &str) {
    let key = world.text("select key from settled.intents where id = $1", id).await;
    receiver.effects().record(Arrived { key, reference: reference.to_owned(), ..Arrived::default() });
}

#[tokio::test]
async fn an_ordinary_send_that_is_there_once_is_closed_without_a_word() {
    let (_receiver, mut world) = sampling().await;
    let id = send(&mut world, "INV-1").await;
    world.turn(11);
    world.audit().await;
    assert_eq!(result(&world, id).await.as_deref(), Some("one"));
    assert_eq!((world.state(id).await.as_str(), marks(&world, id).await.as_deref()), ("sent", Some("")));
    assert!(world.reasons(id).await.is_empty());
    let told: i64 = sqlx::query_scalar("select count(*) from settled.journal where intent_id = $1 and kind = 'audit'")
        .bind(id)
        .fetch_one(&world.db.pool)
        .await
        .unwrap();
    assert_eq!(told, 1);
}

#[tokio::test]
async fn an_ordinary_send_that_is_there_twice_is_reported_and_stays_sent() {
    let (receiver, mut world) = sampling().await;
    let id = send(&mut world, "INV-1").await;
    copy(&world, &receiver, id, "INV-1").await;
    world.turn(11);
    world.audit().await;
    assert_eq!(result(&world, id).await.as_deref(), Some("several"));
    assert_eq!((world.state(id).await.as_str(), marks(&world, id).await.as_deref()), ("sent", Some("duplicate_found")));
    assert_eq!(world.reasons(id).await, ["duplicate_found"]);
}

#[tokio::test]
async fn a_copy_that_shows_up_after_the_second_send_is_found_by_the_audit_of_every_second_attempt() {
    let setting = Setting { fault: Fault::LoseReply, ..Setting::default() };
    let mut doubt = Doubt::prepared(setting, |receiver| receiver.effects().hold_reference("INV-2")).await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "pending", "{:#?}", doubt.world.verdicts(doubt.id).await);
    doubt.world.dispatch().await;
    assert_eq!(doubt.world.state(doubt.id).await, "sent");
    assert_eq!(result(&doubt.world, doubt.id).await.as_deref(), Some("open"));
    doubt.receiver.effects().release();
    doubt.world.turn(60);
    doubt.world.audit().await;
    assert_eq!(result(&doubt.world, doubt.id).await.as_deref(), Some("several"));
    assert_eq!(doubt.world.state(doubt.id).await, "sent");
    assert_eq!(doubt.world.reasons(doubt.id).await, ["duplicate_found"]);
}

#[tokio::test]
async fn a_second_attempt_that_made_the_only_effect_is_no_duplicate() {
    let mut doubt = Doubt::bracketed().await;
    doubt.sent_again("INV-2").await;
    doubt.world.turn(60);
    doubt.world.audit().await;
    assert_eq!(result(&doubt.world, doubt.id).await.as_deref(), Some("one"));
    assert_eq!(marks(&doubt.world, doubt.id).await.as_deref(), Some(""));
}

/// `missing` are answered as sent and never shown, between two that are.
async fn with_missing(missing: &[&str]) -> (Arc<Webhook>, World, Vec<Uuid>) {
    let (receiver, mut world) = sampling().await;
    send(&mut world, "INV-1").await;
    world.turn(2);
    let mut ids = Vec::new();
    for reference in missing {
        receiver.effects().hold_reference(reference);
        ids.push(send(&mut world, reference).await);
    }
    world.turn(2);
    send(&mut world, "INV-99").await;
    // The lag goes by, and then the answers that are needed.
    world.turn(12);
    for _ in 0..3 {
        world.audit().await;
        world.turn(6);
    }
    (receiver, world, ids)
}

#[tokio::test]
async fn what_was_answered_as_sent_and_is_not_there_is_reported_and_stays_sent() {
    let (_receiver, world, ids) = with_missing(&["INV-2"]).await;
    let id = ids[0];
    assert_eq!(result(&world, id).await.as_deref(), Some("not_visible"));
    assert_eq!(
        (world.state(id).await.as_str(), marks(&world, id).await.as_deref()),
        ("sent", Some("sent_not_visible"))
    );
    assert_eq!(world.reasons(id).await, ["sent_not_visible"]);
    let parked: bool = sqlx::query_scalar("select parked_at is not null from settled.destinations")
        .fetch_one(&world.db.pool)
        .await
        .unwrap();
    assert!(!parked, "one is not enough");
}

#[tokio::test]
async fn three_missing_sends_of_an_hour_park_their_destination_and_are_named() {
    let (_receiver, world, ids) = with_missing(&["INV-2", "INV-3", "INV-4"]).await;
    for id in ids {
        assert_eq!(world.state(id).await, "sent");
    }
    let reason: Option<String> =
        sqlx::query_scalar("select parked_reason from settled.destinations").fetch_one(&world.db.pool).await.unwrap();
    let reason = reason.expect("parked");
    for name in ["INV-2", "INV-3", "INV-4"] {
        assert!(reason.contains(name), "{reason}");
    }
    let told: Vec<String> = sqlx::query_scalar("select reason from settled.escalations where subject = 'destination'")
        .fetch_all(&world.db.pool)
        .await
        .unwrap();
    assert_eq!(told, ["destination_parked"]);
}

#[tokio::test]
async fn an_effect_under_our_reference_and_a_key_of_nobody_is_an_orphan() {
    let (receiver, mut world) = sampling().await;
    let id = send(&mut world, "INV-1").await;
    receiver.effects().record(Arrived {
        key: Some("00000000000000000000000000000bad".to_owned()),
        reference: "INV-1".to_owned(),
        ..Arrived::default()
    });
    for _ in 0..2 {
        world.turn(11);
        world.audit().await;
    }
    assert_eq!(result(&world, id).await.as_deref(), Some("one"));
    assert!(world.reasons(id).await.is_empty(), "ours is there once");
    let told: Vec<(String, String)> =
        sqlx::query_as("select subject, summary from settled.escalations where reason = 'orphan_sighting'")
            .fetch_all(&world.db.pool)
            .await
            .unwrap();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].0 == "sighting" && told[0].1.contains("INV-1"), "{told:#?}");
    let kept: Vec<String> =
        sqlx::query_scalar("select key from settled.sightings").fetch_all(&world.db.pool).await.unwrap();
    assert_eq!(kept, ["00000000000000000000000000000bad"]);
}

/// The listing of an hour, whoever asked for what is in it.
#[tokio::test]
async fn an_effect_with_a_key_of_ours_under_a_reference_that_nobody_asked_for_is_an_orphan() {
    let (receiver, mut world) = sampling().await;
    world.audit().await;
    send(&mut world, "INV-1").await;
    for (key, reference) in [("00000000000000000000000000000bad", "INV-777"), ("somebody else's id", "INV-778")] {
        let key = Some(key.to_owned());
        receiver.effects().record(Arrived { key, reference: reference.to_owned(), ..Arrived::default() });
    }
    world.turn(3601);
    for _ in 0..2 {
        world.audit().await;
        world.turn(3601);
    }
    let told: Vec<String> = sqlx::query_scalar("select summary from settled.escalations where subject = 'sighting'")
        .fetch_all(&world.db.pool)
        .await
        .unwrap();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(told[0].contains("explains: INV-777;"), "{told:#?}");
    let kept: i64 =
        sqlx::query_scalar("select count(*) from settled.sightings").fetch_one(&world.db.pool).await.unwrap();
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn two_daemons_share_the_audits_and_each_is_asked_once() {
    let (receiver, mut one) = sampling().await;
    let mut two = one.beside(&[sampled(&receiver)], 1, "k1").await;
    for n in 0..12 {
        send(&mut one, &format!("INV-{n}")).await;
    }
    one.turn(11);
    tokio::join!(one.audit(), two.audit());
    let asked: Vec<i32> = sqlx::query_scalar("select asked from settled.audits").fetch_all(&one.db.pool).await.unwrap();
    assert_eq!(asked, [1; 12]);
}

#[tokio::test]
async fn audits_wait_while_a_question_in_doubt_is_due() {
    let (receiver, mut world) = sampling().await;
    let id = send(&mut world, "INV-1").await;
    receiver.faults().for_reference("INV-2", Fault::LoseReply);
    let doubtful = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    world.turn(60);
    world.audit().await;
    assert_eq!(receiver.desk().asked().len(), 0);
    world.ask().await;
    assert_eq!(world.state(doubtful).await, "sent");
    world.audit().await;
    assert_eq!(result(&world, id).await.as_deref(), Some("one"));
}

/// A late word that its only attempt never began frees a place in the budget. People were told that it failed.
#[tokio::test]
async fn what_has_failed_is_not_sent_again_by_late_evidence() {
    let receiver = Webhook::start().await.unwrap();
    let ledger = Ledger::empty().await;
    let text =
        webhook("erp", &receiver, "", "").replace("lease_margin = \"1s\"", "lease_margin = \"1s\"\nattempts = 1");
    ledger.destination(destination(&text)).await;
    let id = ledger.enqueue("INV-1").await;
    let row = ledger.claim(id).await;
    ledger.finish(id, Outcome::Ambiguous { doubt: DoubtKind::LeaseExpired }).await;
    let until = ledger.now() + chrono::TimeDelta::minutes(5);
    assert_eq!(ledger.look_up_says_absent(id, until).await, State::Failed);
    assert_eq!(ledger.report(id, &row, not_sent(Proof::SelfStopped)).await, State::Failed);
    assert_eq!(ledger.fold_state(id).await, State::Failed);
    assert_eq!(ledger.open_escalations(id).await, ["attempts_exhausted"]);
}
