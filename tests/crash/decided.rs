//! What people decided, and what is being asked, survives the daemon.

use std::{sync::Arc, time::Duration};

use rustix::process::Signal;
use settled::{
    clock::SystemClock,
    demo::fakes::{
        faults::{Fault, Stage, When},
        latch::Latch,
    },
    engine::{
        fleet::Fleet,
        resolution::{self, Act, Person, Target, Words},
    },
    store::tokens::Kind,
};

use crate::{
    count::Count,
    house::{House, ORDERS},
    process::PATIENCE,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_carried_out_once_although_the_daemon_dies_in_it() {
    let house = House::build(|_| {}).await;
    house.orders.faults().next(Fault::Status { code: 400, act: false });
    let daemon = house.serve(&[("SETTLED_FAILPOINTS", "decide-before-commit:1")]);
    let id = house.ask(ORDERS, "D-1").await;
    house.until_state(id, "failed").await;
    let version: i64 = sqlx::query_scalar("select version from settled.intents where id = $1")
        .bind(id)
        .fetch_one(&house.db.pool)
        .await
        .unwrap();
    let words = Words {
        reason: Some("the receiver has repaired it".to_owned()),
        reference: Some("D-1".to_owned()),
        ..Words::default()
    };
    let act = Act::read("send_again", &words).unwrap();
    let person = Person { principal: "ada".to_owned(), kind: Kind::Responder, tenant: None };
    let nothing_served = Fleet::new(Vec::new(), Box::new(|_| Ok(None)));
    let target = Target::Intent(id);
    resolution::act(&house.db.pool, &nothing_served, &SystemClock, &person, target, &act, Some(version)).await.unwrap();
    daemon.killed().await;
    assert_eq!(house.state(id).await, "failed", "half a decision was carried out");

    let next = house.serve(&[]);
    next.up().await;
    house.until_state(id, "sent").await;
    let applied: i64 = sqlx::query_scalar(
        "select count(*) from settled.journal where intent_id = $1 and data->>'act' = 'send_again_applied'",
    )
    .bind(id)
    .fetch_one(&house.db.pool)
    .await
    .unwrap();
    assert_eq!(applied, 1);
    Count::of(&house).await.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_a_dead_daemon_had_asked_is_soon_put_again() {
    let house = House::build(|_| {}).await;
    house.orders.faults().next(Fault::LoseReply);
    let silence = Arc::new(Latch::default());
    let held = Fault::HoldUntilReleased { act: true, latch: Arc::clone(&silence) };
    house.orders.desk().faults.add(Stage::Act, When::Any, u64::MAX, held);
    let daemon = house.serve(&[]);
    let id = house.ask(ORDERS, "D-2").await;
    assert!(silence.arrived(1, PATIENCE).await, "nothing was asked:\n{}", daemon.last_words());
    daemon.signal(Signal::KILL);
    daemon.killed().await;
    house.orders.desk().faults.clear();
    let next = house.serve(&[]);
    next.up().await;
    // Far less than the lease of a question: the worker's heartbeat tells.
    let sent = format!("select state = 'sent' from settled.intents where id = '{id}'");
    house.until("the next daemon has asked", Duration::from_secs(40), &sent).await;
    Count::of(&house).await.assert_clean();
}
