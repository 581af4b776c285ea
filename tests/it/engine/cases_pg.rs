//! Cases about Postgres: what others hold open, and work that meets other work on the same rows.

use std::{sync::Arc, time::Duration};

use settled::{
    demo::fakes::{
        faults::{Fault, Stage, When},
        latch::Latch,
        webhook::Webhook,
    },
    engine::{
        resolution::{self, Act, Person, Target, Words},
        runner::Step,
    },
    store::tokens::Kind,
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::{mute_webhook, webhook},
    world::World,
};

#[tokio::test]
async fn case_117_no_transaction_is_open_while_the_downstream_takes_its_time() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    let latch = Arc::new(Latch::default());
    receiver.faults().add(Stage::Act, When::Any, 8, Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    for n in 0..8 {
        world.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    world.dispatcher.step().await.unwrap();
    assert!(latch.arrived(8, Duration::from_secs(30)).await);
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null",
    )
    .fetch_one(&world.db.pool)
    .await
    .unwrap();
    assert_eq!(open, 0);
    latch.release();
    world.finish().await;
    let sent: i64 = sqlx::query_scalar("select count(*) from settled.intents where state = 'sent'")
        .fetch_one(&world.db.pool)
        .await
        .unwrap();
    assert_eq!((sent, receiver.effects().all().len()), (8, 8));
}

/// Sixty in doubt; people state what they saw from the last to the first, while two daemons ask, sweep and reap.
#[tokio::test(flavor = "multi_thread")]
async fn case_120_people_in_bulk_and_workers_on_the_same_rows_resolve_each_once_without_a_deadlock() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", ""), mute_webhook("partner", &receiver, "in_doubt = \"person\"")]
        .map(|entry| entry.replace("lease_margin =", "breaker_after = 1000\nconcurrency = 60\nlease_margin ="));
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    receiver.faults().always(Fault::LoseReply);
    let mut ids = Vec::new();
    for n in 0..60 {
        let destination = if n % 2 == 0 { "erp" } else { "partner" };
        ids.push(one.enqueue(destination, &format!("INV-{n}"), PAYLOAD).await);
    }
    for _ in 0..8 {
        one.dispatch().await;
    }
    let (sending, people) = (one.sending.clone(), ids.clone());
    let acting = tokio::spawn(async move {
        let mut told = Vec::new();
        for id in people.iter().rev() {
            told.push(state_as_sent(&sending, *id).await);
        }
        told
    });
    for _ in 0..6 {
        let (a, b, c) = (one.reconciler.step(), two.reconciler.step(), two.sweeper.step());
        let (a, b, c) = tokio::join!(a, b, c);
        a.unwrap();
        b.unwrap();
        c.unwrap();
        one.reconciler.finish().await;
        two.reconciler.finish().await;
    }
    for told in acting.await.unwrap() {
        // Whoever comes second is told that it is settled already; nobody is told of a deadlock.
        assert!(!told.contains("40P01") && !told.contains("deadlock"), "{told}");
    }
    for id in ids {
        assert_eq!(one.state(id).await, "sent");
        let moves = "select count(*)::text from settled.journal where intent_id = $1 and kind = 'move' and data->>'to' = 'sent'";
        assert_eq!(one.text(moves, id).await.as_deref(), Some("1"));
    }
    assert_eq!(receiver.effects().all().len(), 60);
}

async fn state_as_sent(sending: &settled::engine::dispatcher::Sending, id: Uuid) -> String {
    let person = Person { principal: "ada".to_owned(), kind: Kind::Responder, tenant: None };
    let words = Words { evidence: Some("seen in the bank's list".to_owned()), ..Words::default() };
    let act = Act::read("sent", &words).unwrap();
    let done = resolution::act(&sending.pool, &sending.fleet, &*sending.clock, &person, Target::Intent(id), &act, None);
    match done.await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}
