//! Every failure mode is counted where it is met, once, and contained: the downstream sees one effect.

use std::{sync::Arc, time::Duration};

use settled::{
    demo::fakes::{
        faults::{Fault, Stage, When},
        latch::Latch,
        ledger_of_effects::Arrived,
        webhook::Webhook,
    },
    domain::failure_mode::FailureMode,
    engine::runner::Step,
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{fragments::webhook, world::World};

const KEEPS_KEYS: &str = "[replay]\nkey_lifetime = \"1h\"\nmargin = \"5m\"";

/// How often a mode was met.
pub(super) fn times(world: &World, mode: FailureMode) -> u64 {
    let start = format!("settled_failure_modes_total{{mode=\"{}\"}} ", mode.as_str());
    let text = world.sending.metrics.text().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("no {start}"));
    line.parse().unwrap()
}

/// INV-1 after one bad end.
async fn after_one(settings: &str, fault: Fault) -> (Webhook, World, Uuid) {
    let receiver = Webhook::start().await.unwrap();
    receiver.keep_keys(!settings.is_empty());
    let mut world = World::new(&[webhook("erp", &receiver, settings, "")]).await;
    receiver.faults().next(fault);
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    (receiver, world, id)
}

#[tokio::test]
async fn a_clean_send_meets_no_failure_mode() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent");
    for mode in FailureMode::ALL {
        assert_eq!(times(&world, mode), 0, "{}", mode.as_str());
    }
}

#[tokio::test]
async fn a_reply_that_proves_nothing_is_an_unrecognised_error_and_not_a_failure() {
    let (receiver, mut world, id) = after_one("", Fault::Status { code: 500, act: true }).await;
    assert_eq!(world.state(id).await, "unknown");
    assert_eq!(times(&world, FailureMode::UnrecognisedError), 1);
    world.ask().await;
    assert_eq!((world.state(id).await.as_str(), receiver.effects().all().len()), ("sent", 1));
    assert_eq!(times(&world, FailureMode::UnrecognisedError), 1, "asking does not count it again");
}

#[tokio::test]
async fn a_stored_failure_that_is_replayed_is_a_poisoned_key_and_a_metered_attempt() {
    let (receiver, mut world, _id) = after_one(KEEPS_KEYS, Fault::Status { code: 500, act: false }).await;
    receiver.keep_failures(true);
    receiver.faults().next(Fault::Status { code: 500, act: false });
    for _ in 0..4 {
        world.ask().await;
        world.turn(600);
    }
    let met = [FailureMode::MeteredAttempt, FailureMode::UnrecognisedError].map(|mode| times(&world, mode));
    assert!(met.iter().all(|times| *times > 0), "{met:?}");
    assert_eq!(times(&world, FailureMode::PoisonedKey), 1);
}

#[tokio::test]
async fn a_question_after_the_life_of_the_key_is_counted_once() {
    let (receiver, mut world, id) = after_one(KEEPS_KEYS, Fault::ResetBeforeActing).await;
    world.turn(2 * 3600);
    for _ in 0..3 {
        world.ask().await;
        world.turn(60);
    }
    assert!(world.verdicts(id).await.len() > 1);
    assert_eq!(times(&world, FailureMode::KeyLifetimeOver), 1);
    assert_eq!(receiver.effects().all().len(), 0);
}

#[tokio::test]
async fn a_lease_that_ends_without_a_result_is_counted_and_its_late_result_comes_from_a_stale_worker() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    let late = world.send_only().await;
    world.turn(3600);
    world.reaper.step().await.unwrap();
    assert_eq!(times(&world, FailureMode::LeaseExpired), 1);
    assert_eq!(times(&world, FailureMode::StaleWorker), 0);
    world.write(late).await;
    assert_eq!((world.state(id).await.as_str(), times(&world, FailureMode::StaleWorker)), ("sent", 1));
}

#[tokio::test]
async fn a_worker_that_died_with_an_attempt_open_is_counted() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    let id = one.enqueue("erp", "INV-1", PAYLOAD).await;
    one.send_only().await;
    two.reaper.heartbeat_limit = Duration::from_secs(1);
    two.reaper.step().await.unwrap();
    assert_eq!((two.state(id).await.as_str(), times(&two, FailureMode::WorkerDead)), ("unknown", 1));
}

#[tokio::test]
async fn a_stop_that_cannot_wait_for_a_send_is_counted() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let latch = Arc::new(Latch::default());
    receiver.faults().add(Stage::Act, When::Any, 1, Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatcher.step().await.unwrap();
    assert!(latch.arrived(1, Duration::from_secs(30)).await);
    world.sending.hard_stop.cancel();
    world.finish().await;
    latch.release();
    assert_eq!((world.state(id).await.as_str(), times(&world, FailureMode::DrainDeadline)), ("unknown", 1));
}

#[tokio::test]
async fn one_send_that_arrived_twice_was_repeated_by_another_layer() {
    let (receiver, mut world, id) = after_one("", Fault::LoseReply).await;
    let key = world.text("select key from settled.intents where id = $1", id).await;
    receiver.effects().record(Arrived { key, reference: "INV-1".to_owned(), ..Arrived::default() });
    world.ask().await;
    assert_eq!(world.reasons(id).await, ["duplicate_found"]);
    assert_eq!(times(&world, FailureMode::DuplicateFound), 1);
    assert_eq!(times(&world, FailureMode::RetriedRetry), 1);
}

#[tokio::test]
async fn a_secret_that_was_replaced_under_its_name_makes_no_new_key() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.door().refuse().await.unwrap();
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    let pinned = "select key from settled.intents where id = $1";
    let before = world.text(pinned, id).await;
    assert_eq!(times(&world, FailureMode::KeyRegenerated), 0);
    // As after an edit of [instance] region: what is derived today is another key.
    world.sending.region = "elsewhere".to_owned();
    world.dispatcher = settled::engine::dispatcher::Dispatcher::new(world.sending.clone());
    receiver.door().accept().await.unwrap();
    world.turn(3600);
    world.dispatch().await;
    assert_eq!((world.state(id).await.as_str(), times(&world, FailureMode::KeyRegenerated)), ("sent", 1));
    assert_eq!(receiver.effects().all()[0].key, before);
}

#[tokio::test]
async fn a_destination_that_moved_while_something_was_in_doubt_is_counted_and_the_old_one_is_asked() {
    let (old, new) = (Webhook::start().await.unwrap(), Webhook::start().await.unwrap());
    let mut before = World::new(&[webhook("erp", &old, "", "")]).await;
    old.faults().next(Fault::LoseReply);
    let id = before.enqueue("erp", "INV-1", PAYLOAD).await;
    before.dispatch().await;
    let mut after = before.beside(&[webhook("erp", &new, "", "")], 2, "k1").await;
    after.ask().await;
    assert_eq!((after.state(id).await.as_str(), times(&after, FailureMode::ProviderChanged)), ("sent", 1));
    assert_eq!((old.effects().all().len(), new.effects().all().len()), (1, 0));
}
