//! Replay: the same bytes under the same key, inside the key's life and never after.

use settled::demo::fakes::{
    faults::{Fault, Stage},
    ledger_of_effects::Arrived,
    webhook::Webhook,
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::{mute_webhook, webhook},
    world::World,
};

const KEEPS_KEYS: &str = "[replay]\nkey_lifetime = \"1h\"\nmargin = \"5m\"";

async fn keeper() -> Webhook {
    let receiver = Webhook::start().await.unwrap();
    receiver.keep_keys(true);
    receiver
}

/// INV-1 after one bad end.
async fn in_doubt(world: &mut World, receiver: &Webhook, fault: Fault) -> Uuid {
    receiver.faults().next(fault);
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    id
}

async fn attempts(world: &World, id: Uuid) -> Vec<String> {
    sqlx::query_scalar(
        "select kind || ' ' || coalesce(outcome, 'open') from settled.attempts where intent_id = $1 order by number",
    )
    .bind(id)
    .fetch_all(&world.db.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn inside_the_life_of_the_key_a_replay_settles_with_one_effect() {
    for fault in [Fault::LoseReply, Fault::ResetBeforeActing] {
        let receiver = keeper().await;
        let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
        let id = in_doubt(&mut world, &receiver, fault).await;
        world.turn(60);
        world.ask().await;
        assert_eq!(world.state(id).await, "sent");
        assert_eq!(attempts(&world, id).await, ["send ambiguous", "replay sent"]);
        assert_eq!(receiver.effects().all().len(), 1);
        assert!(world.reasons(id).await.is_empty(), "{:?}", world.reasons(id).await);
    }
}

#[tokio::test]
async fn a_replay_carries_the_same_key_and_nothing_that_would_make_it_another_request() {
    let receiver = keeper().await;
    let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
    in_doubt(&mut world, &receiver, Fault::ResetBeforeActing).await;
    world.ask().await;
    let effects = receiver.effects().all();
    assert_eq!((effects.len(), effects[0].attempt), (1, None), "the number of the attempt would change the bytes");
}

#[tokio::test]
async fn after_the_life_of_the_key_it_is_never_replayed_and_the_next_means_is_taken() {
    let receiver = keeper().await;
    let mut world = World::new(&[webhook("erp", &receiver, KEEPS_KEYS, "")]).await;
    let id = in_doubt(&mut world, &receiver, Fault::LoseReply).await;
    world.turn(55 * 60);
    for _ in 0..3 {
        world.ask().await;
        world.dispatch().await;
        world.turn(900);
    }
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert_eq!(attempts(&world, id).await, ["send ambiguous"]);
    assert_eq!(receiver.faults().count(Stage::Act), 1);
}

#[tokio::test]
async fn after_the_life_of_the_key_a_destination_that_cannot_be_asked_waits_for_a_person() {
    let receiver = keeper().await;
    let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
    let id = in_doubt(&mut world, &receiver, Fault::LoseReply).await;
    receiver.keys().forget_all();
    world.turn(55 * 60);
    for _ in 0..3 {
        world.ask().await;
        world.dispatch().await;
        world.turn(86_400);
    }
    assert_eq!((world.state(id).await.as_str(), receiver.faults().count(Stage::Act)), ("unknown", 1));
    assert_eq!(world.reasons(id).await, ["no_look_up"]);
}

#[tokio::test]
async fn a_replayed_failure_settles_nothing_and_ends_the_replays() {
    let receiver = keeper().await;
    receiver.keep_failures(true);
    let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
    let id = in_doubt(&mut world, &receiver, Fault::Status { code: 500, act: false }).await;
    for _ in 0..4 {
        world.ask().await;
        world.dispatch().await;
        world.turn(600);
    }
    assert_eq!(attempts(&world, id).await, ["send ambiguous", "replay ambiguous"]);
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(world.reasons(id).await, ["poisoned_key"]);
    assert_eq!(receiver.faults().count(Stage::Act), 2);
}

#[tokio::test]
async fn a_replayed_failure_is_followed_by_the_next_means() {
    let receiver = keeper().await;
    receiver.keep_failures(true);
    let mut world = World::new(&[webhook("erp", &receiver, KEEPS_KEYS, "")]).await;
    let id = in_doubt(&mut world, &receiver, Fault::Status { code: 500, act: false }).await;
    // It acted all the same, and stored the failure.
    let key = world.text("select key from settled.intents where id = $1", id).await;
    receiver.effects().record(Arrived { key, reference: "INV-1".to_owned(), ..Arrived::default() });
    for _ in 0..3 {
        world.ask().await;
        world.turn(600);
    }
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert_eq!(attempts(&world, id).await, ["send ambiguous", "replay ambiguous"]);
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn a_replay_that_gets_no_answer_either_is_replayed_again_later() {
    let receiver = keeper().await;
    let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
    let id = in_doubt(&mut world, &receiver, Fault::LoseReply).await;
    receiver.faults().next(Fault::LoseReply);
    world.ask().await;
    assert_eq!(world.state(id).await, "unknown");
    world.ask().await;
    assert_eq!(receiver.faults().count(Stage::Act), 2, "not at once");
    world.turn(600);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn a_4xx_duplicate_in_answer_to_a_replay_does_not_make_it_failed() {
    // The downstream acted, forgot the key, and now refuses the reference as a duplicate.
    for code in [400, 409, 422] {
        let receiver = keeper().await;
        let mut world = World::new(&[webhook("erp", &receiver, KEEPS_KEYS, "")]).await;
        let id = in_doubt(&mut world, &receiver, Fault::LoseReply).await;
        receiver.faults().next(Fault::Status { code, act: false });
        world.ask().await;
        assert_eq!(world.state(id).await, "unknown", "{code}");
        let repeat = crate::support::world::new_request("erp", "INV-1", PAYLOAD, "another-run", 1);
        let told = world.request(&repeat).await.unwrap();
        assert_eq!((told.intent_id, told.state.as_str()), (id, "unknown"));
        world.turn(3600);
        world.ask().await;
        assert_eq!(world.state(id).await, "sent", "{code}: {:#?}", world.verdicts(id).await);
        assert_eq!(receiver.effects().all().len(), 1);
    }
}
