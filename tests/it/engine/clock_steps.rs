//! The database clock steps against the clock of the process, which never does: for a while no lease is taken for over and no
//! absence is believed. Turning the wall clock alone is what a step looks like from here.

use std::sync::Arc;

use chrono::TimeDelta;
use settled::{
    clock::Clock,
    demo::fakes::{faults::Fault, webhook::Webhook},
    engine::runner::{Progress, Step},
};

use super::doubt::{Doubt, PAYLOAD};
use crate::support::{fragments::webhook, world::World};

fn step(world: &World, by: TimeDelta) {
    world.clock.set_wall(world.clock.now() + by);
}

/// An attempt of a worker that never reports.
async fn in_flight() -> (Arc<Webhook>, World, uuid::Uuid) {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    world.beat().await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    drop(world.send_only().await);
    (receiver, world, id)
}

#[tokio::test]
async fn a_lease_that_is_over_by_a_step_alone_is_not_reaped_until_the_time_has_gone_by() {
    let (_receiver, mut world, id) = in_flight().await;
    step(&world, TimeDelta::minutes(10));
    world.beat().await;
    assert_eq!(world.reaper.step().await.unwrap(), Progress::Idle);
    assert_eq!(world.state(id).await, "in_flight");
    let text = world.sending.metrics.text().unwrap();
    assert!(text.contains("settled_clock_steps_total 1"), "{text}");
    // The longer of lease and lag, by our own clock.
    world.turn(60);
    world.beat().await;
    world.reaper.step().await.unwrap();
    assert_eq!(world.state(id).await, "unknown");
}

#[tokio::test]
async fn a_step_is_noticed_by_what_it_would_hasten_before_the_next_heartbeat_is() {
    let (_receiver, mut world, id) = in_flight().await;
    step(&world, TimeDelta::minutes(10));
    assert_eq!(world.reaper.step().await.unwrap(), Progress::Idle);
    assert_eq!(world.state(id).await, "in_flight");
}

#[tokio::test]
async fn a_reading_that_waited_for_a_lock_while_younger_ones_came_is_no_step() {
    let (_receiver, mut world, id) = in_flight().await;
    // Read before the wait, and heard after the heartbeat.
    let (asked, read) = (world.clock.boot(), world.clock.now());
    world.turn(30);
    world.beat().await;
    world.sending.watch.heard(asked, read);
    world.reaper.step().await.unwrap();
    assert_eq!(world.state(id).await, "unknown");
    let text = world.sending.metrics.text().unwrap();
    assert!(text.contains("settled_clock_steps_total 0"), "{text}");
}

#[tokio::test]
async fn a_daemon_that_has_just_started_takes_no_lease_for_over_that_it_has_not_seen_as_long() {
    let (receiver, first, id) = in_flight().await;
    // The clock steps while no daemon looks, and another one starts after that.
    step(&first, TimeDelta::minutes(10));
    let mut second = first.beside(&[webhook("erp", &receiver, "", "")], 1, "k1").await;
    second.beat().await;
    assert_eq!(second.reaper.step().await.unwrap(), Progress::Idle);
    assert_eq!(second.state(id).await, "in_flight");
    second.turn(30);
    second.reaper.step().await.unwrap();
    assert_eq!(second.state(id).await, "unknown");
}

#[tokio::test]
async fn after_a_step_either_way_nothing_is_absent_until_the_time_has_gone_by() {
    for seconds in [600, -20] {
        let mut doubt = Doubt::bracketed().await;
        doubt.world.beat().await;
        step(&doubt.world, TimeDelta::seconds(seconds));
        doubt.world.beat().await;
        for _ in 0..2 {
            sqlx::query("update settled.queue set due_at = '2000-01-01'").execute(&doubt.world.db.pool).await.unwrap();
            doubt.world.ask().await;
            // Short of the lag in all, and the spacing between the two.
            doubt.world.turn(3);
        }
        let verdicts = doubt.world.verdicts(doubt.id).await;
        assert_eq!(verdicts.len(), 2, "{seconds}: {verdicts:?}");
        assert!(verdicts.iter().all(|v| v.contains("clock stepped")), "{seconds}: {verdicts:?}");
        doubt.nothing_was_sent();
        doubt.world.turn(10);
        sqlx::query("update settled.queue set due_at = '2000-01-01'").execute(&doubt.world.db.pool).await.unwrap();
        doubt.sent_again("INV-2").await;
    }
}

#[tokio::test]
async fn a_daemon_that_has_just_started_believes_no_absence_that_rests_on_a_wait_it_has_not_seen() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entries = [webhook("erp", &receiver, "", "absent_by_lag = \"resend\"")];
    let mut first = World::new(&entries).await;
    first.enqueue("erp", "INV-1", PAYLOAD).await;
    first.dispatch().await;
    first.turn(60);
    receiver.faults().for_reference("INV-2", Fault::ResetBeforeActing);
    let id = first.enqueue("erp", "INV-2", PAYLOAD).await;
    first.dispatch().await;
    assert_eq!(first.state(id).await, "unknown");
    step(&first, TimeDelta::minutes(10));
    let mut second = first.beside(&entries, 1, "k1").await;
    second.beat().await;
    for _ in 0..2 {
        sqlx::query("update settled.queue set due_at = '2000-01-01'").execute(&second.db.pool).await.unwrap();
        second.ask().await;
        second.turn(4);
    }
    let verdicts = second.verdicts(id).await;
    assert!(verdicts.iter().all(|v| v.contains("not watched the clock")) && verdicts.len() == 2, "{verdicts:?}");
    for _ in 0..6 {
        if second.state(id).await != "unknown" {
            break;
        }
        second.turn(10);
        second.ask().await;
    }
    second.dispatch().await;
    assert_eq!((second.state(id).await.as_str(), receiver.effects().all().len()), ("sent", 2));
}
