//! Several daemons over one ledger, and one that is stopped in mid-send.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use settled::{
    demo::fakes::{
        faults::{Fault, Stage, When},
        latch::Latch,
        webhook::Webhook,
    },
    engine::{
        admission,
        runner::{Progress, Step},
    },
};

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::webhook,
    world::{World, new_request},
};

const SOON: Duration = Duration::from_secs(20);

async fn count(world: &World, what: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {what}")))
        .fetch_one(&world.db.pool)
        .await
        .unwrap()
}

async fn drain(world: &mut World) {
    while world.dispatcher.step().await.unwrap() != Progress::Idle {
        world.finish().await;
    }
}

#[tokio::test]
async fn four_dispatchers_at_once_post_every_reference_once() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let home = World::new(&entries).await;
    for n in 0..200 {
        home.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    let mut daemons = Vec::new();
    for _ in 0..4 {
        daemons.push(home.beside(&entries, 1, "k1").await);
    }
    join_all(daemons.iter_mut().map(drain)).await;
    assert_eq!((receiver.effects().all().len(), receiver.faults().count(Stage::Act)), (200, 200));
    assert!(receiver.effects().duplicates().is_empty());
    assert_eq!(count(&home, "settled.intents where state = 'sent'").await, 200);
    assert_eq!(count(&home, "settled.queue").await, 0);
    let shared: i64 = count(&home, "(select distinct worker from settled.attempts) w").await;
    assert!(shared > 1, "one daemon did everything");
}

#[tokio::test]
async fn running_the_handler_twice_at_once_makes_one_row_and_one_call() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    let handler = new_request("erp", "INV-2291", PAYLOAD, "run-7", 3);
    let (a, b) = tokio::join!(admission::admit(&one.db.pool, &handler), admission::admit(&two.db.pool, &handler));
    assert_eq!(a.unwrap().intent_id, b.unwrap().intent_id);
    tokio::join!(one.dispatch(), two.dispatch());
    assert_eq!((receiver.faults().count(Stage::Act), receiver.effects().all().len()), (1, 1));
    for table in ["intents", "requests", "attempts"] {
        assert_eq!(count(&one, &format!("settled.{table}")).await, 1, "{table}");
    }
    // And once more when it is long over.
    let again = admission::admit(&one.db.pool, &handler).await.unwrap();
    assert_eq!(again.state, "sent");
    tokio::join!(one.dispatch(), two.dispatch());
    assert_eq!(receiver.faults().count(Stage::Act), 1);
}

#[tokio::test]
async fn a_late_result_and_a_reaper_at_once_lose_nothing() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    for n in 0..16 {
        one.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    let results = one.send_only().await;
    assert_eq!(results.len(), 16);
    one.turn(60);
    let (left, reaped) = tokio::join!(one.try_write(results), two.reaper.step());
    reaped.unwrap();
    one.write(left).await;
    assert_eq!(count(&one, "settled.intents where state = 'sent'").await, 16);
    assert_eq!(count(&one, "settled.queue").await, 0);
    assert_eq!(count(&one, "settled.escalations where closed_at is null").await, 0);
    assert_eq!(receiver.effects().all().len(), 16);
}

#[tokio::test]
async fn a_daemon_that_is_stopped_in_mid_send_leaves_its_evidence_and_another_one_asks() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    let latch = Arc::new(Latch::default());
    let hold = Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) };
    receiver.faults().add(Stage::Act, When::Any, 5, hold);
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(one.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await);
    }
    one.dispatcher.step().await.unwrap();
    assert!(latch.arrived(5, SOON).await);
    one.sending.hard_stop.cancel();
    one.finish().await;
    latch.release();
    for id in &ids {
        assert_eq!(one.state(*id).await, "unknown");
        let told = "select report->'outcome'->>'doubt' || ': ' || (report->'report'->>'cause') from settled.attempts where intent_id = $1";
        let told = one.text(told, *id).await.unwrap_or_default();
        assert!(told.contains("interrupted") && told.contains("stopped in mid-send"), "{told}");
    }
    two.turn(60);
    two.ask().await;
    for id in &ids {
        assert_eq!(two.state(*id).await, "sent", "{:#?}", two.verdicts(*id).await);
    }
    let keys: HashSet<_> = receiver.effects().all().into_iter().map(|e| e.key).collect();
    assert_eq!((keys.len(), receiver.faults().count(Stage::Act)), (5, 5));
}

#[tokio::test]
async fn two_reconcilers_do_not_ask_the_same_question() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    receiver.faults().always(Fault::LoseReply);
    for n in 0..8 {
        one.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    one.dispatch().await;
    assert_eq!(count(&one, "settled.intents where state = 'unknown'").await, 8);
    tokio::join!(one.ask(), two.ask());
    assert_eq!(count(&one, "settled.intents where state = 'sent'").await, 8);
    assert_eq!(count(&one, "settled.journal where kind = 'look_up'").await, 8);
}
