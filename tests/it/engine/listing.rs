//! One listing answers for many intents.

use settled::{
    demo::fakes::{
        faults::{Fault, Stage},
        webhook::Webhook,
    },
    domain::{absence, evidence::Verdict},
    engine::runner::{Progress, Step},
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{fragments::webhook, world::World};

/// Twenty calls a minute, and nothing that would stop a flood of doubts from arising.
fn flooded(receiver: &Webhook) -> String {
    webhook("erp", receiver, "", "per_minute = 20").replace(
        "lease_margin = \"1s\"",
        "lease_margin = \"1s\"\nbreaker_after = 100000\nopen_unknowns = 100000\nconcurrency = 64",
    )
}

async fn flood(world: &mut World, receiver: &Webhook, how_many: usize, fault: Fault) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for n in 0..how_many {
        let reference = format!("FLOOD-{n}");
        receiver.faults().for_reference(&reference, fault.clone());
        ids.push(world.enqueue("erp", &reference, PAYLOAD).await);
    }
    while world.dispatcher.step().await.unwrap() != Progress::Idle {
        world.finish().await;
    }
    ids
}

async fn states(world: &World) -> Vec<(String, i64)> {
    sqlx::query_as("select state, count(*) from settled.intents group by 1 order by 1")
        .fetch_all(&world.db.pool)
        .await
        .unwrap()
}

/// Every verdict of the journal can be computed again from what is kept.
async fn every_verdict_can_be_computed_again(world: &World) -> usize {
    let rows: Vec<(serde_json::Value, serde_json::Value)> = sqlx::query_as(
        "select data, settled.whole_look_up(data) from settled.journal where kind = 'look_up' order by id",
    )
    .fetch_all(&world.db.pool)
    .await
    .unwrap();
    for (stored, whole) in &rows {
        let verdict: Verdict = serde_json::from_value(stored.clone()).unwrap();
        let again = absence::Case::from_record(&whole["record"]).unwrap_or_else(|e| panic!("{e}: {whole}")).judge();
        assert_eq!(again.verdict, verdict, "{whole}");
    }
    rows.len()
}

#[tokio::test]
async fn a_flood_of_doubts_is_settled_by_one_listing_inside_a_small_budget() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[flooded(&receiver)]).await;
    flood(&mut world, &receiver, 250, Fault::LoseReply).await;
    assert_eq!(states(&world).await, [("unknown".to_owned(), 250)]);
    world.turn(30);
    world.ask().await;
    assert_eq!(states(&world).await, [("sent".to_owned(), 250)]);
    let calls = receiver.desk().asked();
    assert!(calls.len() <= 4, "the account and three pages: {calls:#?}");
    assert_eq!(every_verdict_can_be_computed_again(&world).await, 250);
    let rounds: Vec<i32> =
        sqlx::query_scalar("select intents from settled.rounds").fetch_all(&world.db.pool).await.unwrap();
    assert_eq!(rounds, [250]);
    let own: i64 = sqlx::query_scalar(
        "select count(*) from settled.journal where kind = 'look_up' and data -> 'record' -> 'case' ? 'rules'",
    )
    .fetch_one(&world.db.pool)
    .await
    .unwrap();
    assert_eq!(own, 0, "the shared part is kept once");
}

#[tokio::test]
async fn one_pair_of_witnesses_proves_many_absent_and_each_is_sent_again_once() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[flooded(&receiver)]).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    flood(&mut world, &receiver, 40, Fault::ResetBeforeActing).await;
    // One of them arrived all the same.
    let arrived =
        world.text("select key from settled.intents where reference = 'flood-7' and $1 is not null", Uuid::nil());
    let key = arrived.await;
    receiver.effects().record(settled::demo::fakes::ledger_of_effects::Arrived {
        key,
        reference: "FLOOD-7".to_owned(),
        ..Default::default()
    });
    world.turn(30);
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    let sends = receiver.faults().count(Stage::Act);
    world.ask().await;
    world.turn(6);
    world.ask().await;
    assert_eq!(states(&world).await, [("pending".to_owned(), 39), ("sent".to_owned(), 3)]);
    assert_eq!(receiver.desk().asked().len(), 4, "two listings");
    assert_eq!(every_verdict_can_be_computed_again(&world).await, 79);
    while world.dispatcher.step().await.unwrap() != Progress::Idle {
        world.finish().await;
    }
    assert_eq!(receiver.faults().count(Stage::Act) - sends, 39);
    assert!(receiver.effects().duplicates().is_empty());
    assert_eq!(states(&world).await, [("sent".to_owned(), 42)]);
}

/// What is young among many does not take the proof from what is old: its own lag has not gone by, so a witness after it is
/// not asked for.
#[tokio::test]
async fn a_fresh_doubt_in_the_same_listing_does_not_spoil_the_proof_of_an_old_one() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[flooded(&receiver)]).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    let old = flood(&mut world, &receiver, 3, Fault::ResetBeforeActing).await;
    world.turn(30);
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    receiver.faults().for_reference("INV-4", Fault::ResetBeforeActing);
    let fresh = world.enqueue("erp", "INV-4", PAYLOAD).await;
    world.dispatch().await;
    // Sent a moment ago, and not visible yet.
    receiver.effects().hold_reference("INV-5");
    world.enqueue("erp", "INV-5", PAYLOAD).await;
    world.dispatch().await;
    world.ask().await;
    world.turn(6);
    world.ask().await;
    for id in old {
        assert_eq!(world.state(id).await, "pending", "{:#?}", world.verdicts(id).await);
    }
    assert_eq!(world.state(fresh).await, "unknown", "{:#?}", world.verdicts(fresh).await);
}
