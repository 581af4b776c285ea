//! Absence, end to end: proven with controls, and never without.

use settled::demo::fakes::{faults::Fault, webhook::Webhook};

use crate::support::{fragments::webhook, world::World};

const PAYLOAD: &str = r#"{"type":"invoice.created"}"#;

#[tokio::test]
async fn a_send_that_never_arrived_is_proven_absent_with_controls_and_sent_again() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    world.ask().await;
    assert_eq!(world.state(id).await, "unknown", "{:?}", world.verdicts(id).await);
    // The lease has ended; a younger witness goes out after that.
    world.turn(30);
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    world.ask().await;
    assert_eq!(world.state(id).await, "unknown", "one answer of two");
    world.turn(6);
    world.ask().await;
    assert_eq!(world.state(id).await, "pending", "{:#?}", world.verdicts(id).await);
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 1);
}

#[tokio::test]
async fn without_a_younger_witness_absence_is_left_to_a_person() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    world.turn(60);
    for _ in 0..4 {
        world.ask().await;
        world.turn(6);
    }
    assert_eq!(world.state(id).await, "unknown", "{:#?}", world.verdicts(id).await);
    assert_eq!(world.reasons(id).await, ["inconclusive"]);
    world.dispatch().await;
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 0);
}

#[tokio::test]
async fn a_proof_that_goes_stale_before_the_send_is_asked_for_again() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = proven_absent(&receiver, &mut world).await;
    // The proof lives as long as the lag, ten seconds.
    world.turn(11);
    world.dispatch().await;
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 0);
    for _ in 0..3 {
        world.ask().await;
        world.dispatch().await;
        world.turn(6);
    }
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 1);
}

/// INV-2, reset before it acted, between two witnesses, proven absent.
async fn proven_absent(receiver: &Webhook, world: &mut World) -> uuid::Uuid {
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    world.ask().await;
    world.turn(6);
    world.ask().await;
    assert_eq!(world.state(id).await, "pending", "{:#?}", world.verdicts(id).await);
    id
}
