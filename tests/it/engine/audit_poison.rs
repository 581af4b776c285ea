//! One row that this version cannot read (a newer one wrote it) stops nothing but itself.

use std::{sync::Arc, time::Duration};

use settled::{
    demo::fakes::{faults::Fault, ledger_of_effects::Arrived, webhook::Webhook},
    engine::{results::Recorder, runner::Step},
    telemetry::metrics::Metrics,
};
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{fragments::webhook, world::World};

/// A verdict that a later version has learned.
async fn unreadable(world: &World, id: Uuid) {
    sqlx::query(
        r#"insert into settled.journal (intent_id, kind, attempt, actor, data)
           values ($1, 'look_up', 1, 'reconciler@later', '{"verdict": "of_a_later_version"}')"#,
    )
    .bind(id)
    .execute(&world.db.pool)
    .await
    .unwrap();
}

async fn one_destination() -> (Webhook, World) {
    let receiver = Webhook::start().await.unwrap();
    let world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    (receiver, world)
}

#[tokio::test]
async fn the_reaper_reaps_the_others() {
    let (_receiver, mut world) = one_destination().await;
    let first = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.send_only().await;
    world.turn(1);
    let second = world.enqueue("erp", "INV-2", PAYLOAD).await;
    world.send_only().await;
    unreadable(&world, first).await;
    world.turn(3600);
    let _told = world.reaper.step().await;
    assert_eq!(world.state(first).await, "in_flight");
    assert_eq!(world.state(second).await, "unknown");
}

#[tokio::test]
async fn the_sweeper_expires_the_others_and_goes_on_to_its_other_work() {
    let (_receiver, mut world) = one_destination().await;
    let mut ids = Vec::new();
    for (reference, minutes) in [("INV-1", 10), ("INV-2", 20), ("INV-3", 130)] {
        let id = world.enqueue("erp", reference, PAYLOAD).await;
        for table in ["intents set deadline", "queue set deadline"] {
            let column = if table.starts_with("queue") { "intent_id" } else { "id" };
            let sql = format!("update settled.{table} = now() + make_interval(mins => $2) where {column} = $1");
            sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id).bind(minutes).execute(&world.db.pool).await.unwrap();
        }
        ids.push(id);
    }
    unreadable(&world, ids[0]).await;
    world.turn(7200);
    let _told = world.sweeper.step().await;
    assert_eq!(world.state(ids[1]).await, "cancelled");
    assert_eq!(world.reasons(ids[2]).await, ["deadline_near"]);
}

#[tokio::test]
async fn the_decider_applies_the_decisions_about_others() {
    let (receiver, mut world) = one_destination().await;
    let mut ids = Vec::new();
    for reference in ["INV-1", "INV-2"] {
        receiver.faults().next(Fault::Status { code: 422, act: false });
        let id = world.enqueue("erp", reference, PAYLOAD).await;
        world.dispatch().await;
        assert_eq!(world.state(id).await, "failed");
        sqlx::query(
            "insert into settled.decisions (id, intent_id, act, actor, reason, effective_at)
             values ($1, $2, 'send_again', 'responder:ada', 'again', now() + make_interval(secs => $3))",
        )
        .bind(Uuid::now_v7())
        .bind(id)
        .bind(f64::from(u32::try_from(ids.len()).unwrap()))
        .execute(&world.db.pool)
        .await
        .unwrap();
        ids.push(id);
    }
    unreadable(&world, ids[0]).await;
    let _told = world.decider().step().await;
    assert_eq!(world.state(ids[0]).await, "failed");
    assert_eq!(world.state(ids[1]).await, "pending");
}

#[tokio::test]
async fn the_dispatcher_sends_the_others() {
    let receivers = [Webhook::start().await.unwrap(), Webhook::start().await.unwrap()];
    let mut world = World::new(&[webhook("a", &receivers[0], "", ""), webhook("b", &receivers[1], "", "")]).await;
    let mut poisoned = Vec::new();
    for (name, receiver) in ["a", "b"].into_iter().zip(&receivers) {
        receiver.door().refuse().await.unwrap();
        let id = world.enqueue(name, &format!("INV-{name}"), PAYLOAD).await;
        world.dispatch().await;
        assert_eq!(world.state(id).await, "pending");
        receiver.door().accept().await.unwrap();
        poisoned.push(id);
    }
    // Of the two destinations one is good, whichever comes first.
    let (bad, good) = (poisoned[0], poisoned[1]);
    unreadable(&world, bad).await;
    world.turn(3600);
    let beside = world.enqueue("a", "INV-2", PAYLOAD).await;
    world.turn(1);
    let _told = world.dispatcher.step().await;
    world.finish().await;
    assert_eq!(world.state(bad).await, "pending");
    assert_eq!(world.state(beside).await, "sent", "of the same destination");
    assert_eq!(world.state(good).await, "sent", "of another destination");
}

#[tokio::test]
async fn the_recorder_writes_the_results_of_the_others() {
    let (receiver, mut world) = one_destination().await;
    receiver.faults().next(Fault::LoseReply);
    let first = world.enqueue("erp", "INV-1", PAYLOAD).await;
    let stuck = world.send_only().await;
    unreadable(&world, first).await;
    let (results, inbox) = mpsc::channel(16);
    let recorder = Recorder::new(
        world.db.pool.clone(),
        Arc::clone(&world.fleet),
        world.clock.clone(),
        world.worker,
        Arc::new(Notify::new()),
        std::sync::Arc::default(),
        Metrics::new(),
    );
    let running = tokio::spawn(recorder.run(inbox));
    for finished in stuck {
        results.send(finished).await.unwrap();
    }
    // It has been tried, and failed, when the next one comes.
    tokio::time::timeout(Duration::from_secs(5), async {
        while results.capacity() < 16 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let second = world.enqueue("erp", "INV-2", PAYLOAD).await;
    for finished in world.send_only().await {
        results.send(finished).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while world.state(second).await != "sent" {
        assert!(tokio::time::Instant::now() < deadline, "the result behind the unreadable one was never written");
        tokio::task::yield_now().await;
    }
    assert_eq!(world.state(first).await, "in_flight");
    running.abort();
}

#[tokio::test]
async fn what_the_downstream_shows_is_written_whatever_characters_it_has() {
    let (receiver, mut world) = one_destination().await;
    receiver.faults().next(Fault::ResetBeforeActing);
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    // Postgres takes U+0000 neither in JSON nor in text.
    let key = world.text("select key from settled.intents where id = $1", id).await;
    let reference = "INV\u{0}1".to_owned();
    receiver.effects().record(Arrived { key, reference, ..Arrived::default() });
    world.ask().await;
    assert_eq!(world.reasons(id).await, ["conflict"], "{:#?}", world.verdicts(id).await);
}
