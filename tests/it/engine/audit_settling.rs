//! What must follow when something settles, or when more than one thing is in doubt.

use settled::{
    demo::fakes::{faults::Fault, webhook::Webhook},
    engine::runner::Step,
};

use super::doubt::{Doubt, PAYLOAD};
use crate::support::{
    fragments::{mute_webhook, webhook},
    world::{World, new_request},
};

#[tokio::test]
async fn a_warning_about_a_deadline_ends_when_it_is_sent() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let mut request = new_request("erp", "INV-1", PAYLOAD, "run", 1);
    request.options.deadline = Some(chrono::Utc::now() + chrono::TimeDelta::hours(1));
    let id = world.request(&request).await.unwrap().intent_id;
    world.turn(50 * 60);
    world.sweeper.step().await.unwrap();
    assert_eq!(world.reasons(id).await, ["deadline_near"]);
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    assert!(world.reasons(id).await.is_empty(), "{:?}", world.reasons(id).await);
}

#[tokio::test]
async fn what_is_closed_as_perhaps_sent_does_not_count_as_an_open_doubt() {
    let receiver = Webhook::start().await.unwrap();
    let policy = "in_doubt = \"at_most_once\"";
    let text = webhook("erp", &receiver, policy, "").replace("[limits]", "[limits]\nopen_unknowns = 1");
    let mut world = World::new(&[text]).await;
    receiver.faults().next(Fault::LoseReply);
    let closed = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(closed).await, "abandoned");
    let next = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(next).await, "sent");
}

#[tokio::test]
async fn doubts_that_wait_for_a_person_count_against_the_cap() {
    let receiver = Webhook::start().await.unwrap();
    let text =
        mute_webhook("erp", &receiver, "in_doubt = \"person\"").replace("[limits]", "[limits]\nopen_unknowns = 1");
    let mut world = World::new(&[text]).await;
    receiver.faults().next(Fault::LoseReply);
    let doubted = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(doubted).await, "unknown");
    let next = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(next).await, "pending");
}

#[tokio::test]
async fn two_attempts_in_doubt_are_both_proven_absent_before_a_third() {
    let mut doubt = Doubt::bracketed().await;
    doubt.world.ask().await;
    doubt.world.turn(6);
    doubt.world.ask().await;
    assert_eq!(doubt.world.state(doubt.id).await, "pending");
    doubt.receiver.faults().for_reference("INV-2", Fault::ResetBeforeActing);
    doubt.world.dispatch().await;
    assert_eq!(doubt.world.state(doubt.id).await, "unknown");
    doubt.world.turn(30);
    doubt.world.enqueue("erp", "INV-4", PAYLOAD).await;
    doubt.world.dispatch().await;
    doubt.world.turn(30);
    for _ in 0..600 {
        doubt.world.ask().await;
        doubt.world.dispatch().await;
        if doubt.world.state(doubt.id).await == "sent" {
            break;
        }
        doubt.world.turn(3);
    }
    assert_eq!(doubt.world.state(doubt.id).await, "sent", "{:#?}", doubt.world.verdicts(doubt.id).await);
    assert_eq!(doubt.receiver.effects().count_by_reference("INV-2"), 1);
}

#[tokio::test]
async fn a_row_that_somebody_holds_keeps_the_reaper_from_nothing_else() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let first = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.send_only().await;
    world.turn(1);
    let second = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.send_only().await;
    world.turn(3600);
    // The transaction of a daemon whose machine is gone: Postgres keeps its locks until it notices.
    let mut gone = world.db.pool.begin().await.unwrap();
    sqlx::query("select from settled.intents where id = $1 for no key update")
        .bind(first)
        .execute(&mut *gone)
        .await
        .unwrap();
    let options = settled::store::session::options(&world.db.url, Default::default()).unwrap();
    world.reaper.pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let step = tokio::time::timeout(std::time::Duration::from_secs(20), world.reaper.step()).await;
    assert!(step.is_ok(), "the reaper waits for ever");
    assert_eq!(world.state(first).await, "in_flight");
    assert_eq!(world.state(second).await, "unknown");
    gone.rollback().await.unwrap();
}
