//! A replay that is not possible now may be possible later; one that would come too late is not.

use std::sync::Arc;

use settled::{
    demo::fakes::{
        faults::{Fault, Stage},
        webhook::Webhook,
    },
    store::pauses::{self, Scope},
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::mute_webhook,
    world::{World, new_request},
};

const KEEPS_KEYS: &str = "[replay]\nkey_lifetime = \"1h\"\nmargin = \"5m\"";

/// INV-1 never arrived, and nobody knows that.
async fn in_doubt() -> (Webhook, World, Uuid) {
    let receiver = Webhook::start().await.unwrap();
    receiver.keep_keys(true);
    let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    (receiver, world, id)
}

#[tokio::test]
async fn a_pause_delays_a_replay_and_does_not_end_it() {
    let (receiver, mut world, id) = in_doubt().await;
    let mut conn = world.db.pool.acquire().await.unwrap();
    let scope = Scope::Destination("erp".to_owned());
    pauses::add(&mut conn, &scope, "maintenance", "responder:ada").await.unwrap();
    world.ask().await;
    assert_eq!(receiver.faults().count(Stage::Act), 1);
    assert!(world.reasons(id).await.is_empty(), "{:?}", world.reasons(id).await);
    pauses::remove(&mut conn, &scope, "responder:ada").await.unwrap();
    world.turn(60);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn a_paused_tenant_is_not_replayed_for() {
    let (receiver, mut world, id) = in_doubt().await;
    let mut conn = world.db.pool.acquire().await.unwrap();
    let scope = Scope::Tenant("acme".to_owned());
    pauses::add(&mut conn, &scope, "unpaid", "responder:ada").await.unwrap();
    for _ in 0..5 {
        world.ask().await;
    }
    assert_eq!((receiver.effects().all().len(), receiver.faults().count(Stage::Act)), (0, 1));
    let attempts = world.text("select attempt::text from settled.intents where id = $1", id).await;
    assert_eq!(attempts.as_deref(), Some("1"), "an attempt that must not send is not begun, again and again");
    assert_eq!(world.state(id).await, "unknown");
    pauses::remove(&mut conn, &scope, "responder:ada").await.unwrap();
    world.turn(60);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent");
}

#[tokio::test]
async fn busy_slots_delay_a_replay_and_do_not_end_it() {
    let (receiver, mut world, id) = in_doubt().await;
    let served = Arc::clone(world.fleet.get("erp").unwrap());
    let all = u32::try_from(served.slots.available_permits()).unwrap();
    let busy = Arc::clone(&served.slots).acquire_many_owned(all).await.unwrap();
    world.ask().await;
    assert!(world.reasons(id).await.is_empty(), "{:?}", world.reasons(id).await);
    drop(busy);
    world.turn(60);
    world.ask().await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn after_the_deadline_nothing_is_replayed() {
    let receiver = Webhook::start().await.unwrap();
    receiver.keep_keys(true);
    let mut world = World::new(&[mute_webhook("erp", &receiver, KEEPS_KEYS)]).await;
    receiver.faults().next(Fault::ResetBeforeActing);
    let mut request = new_request("erp", "INV-1", PAYLOAD, "run", 1);
    request.options.deadline = Some(chrono::Utc::now() + chrono::TimeDelta::minutes(10));
    let id = world.request(&request).await.unwrap().intent_id;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    world.turn(601);
    for _ in 0..3 {
        world.ask().await;
        world.turn(300);
    }
    assert_eq!(receiver.effects().all().len(), 0, "the effect was made after its deadline");
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(world.reasons(id).await, ["no_look_up"]);
}

#[tokio::test]
async fn where_a_person_decides_nothing_is_replayed() {
    let receiver = Webhook::start().await.unwrap();
    receiver.keep_keys(true);
    let text = mute_webhook("erp", &receiver, &format!("in_doubt = \"person\"\n{KEEPS_KEYS}"));
    let mut world = World::new(&[text]).await;
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(60);
    world.ask().await;
    assert_eq!(world.reasons(id).await, ["no_look_up"]);
    assert_eq!(receiver.effects().all().len(), 0);
}
