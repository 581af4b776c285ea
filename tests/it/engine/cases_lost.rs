//! Cases of kind LOST: how other systems lost or forgot. `tests/CASES.md` names them.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use settled::{
    clock::{Clock, SystemClock},
    demo::fakes::{
        faults::{Fault, Stage, When},
        latch::Latch,
        webhook::Webhook,
    },
    engine::runner::{Pace, Progress, Step, drive},
    store::{error::StoreError, requests},
    telemetry,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::doubt::PAYLOAD;
use crate::support::{
    db::Database,
    fragments::webhook,
    process::killed_after,
    world::{World, new_request},
};

const SOON: Duration = Duration::from_secs(20);

/// Many at once.
fn wide(receiver: &Webhook, concurrency: u32) -> String {
    webhook("erp", receiver, "", "").replace("[limits]", &format!("[limits]\nconcurrency = {concurrency}"))
}

async fn dispatch_all(world: &mut World) {
    while world.dispatcher.step().await.unwrap() != Progress::Idle {
        world.finish().await;
    }
}

async fn count(world: &World, what: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {what}")))
        .fetch_one(&world.db.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn case_013_a_transaction_that_is_larger_than_a_batch_is_sent_whole_each_with_its_own_id() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[wide(&receiver, 100)]).await;
    // An older transaction holds a lower id and stays open.
    let mut older = world.db.pool.begin().await.unwrap();
    requests::enqueue(&mut older, &new_request("erp", "OLD", PAYLOAD, "old", 1)).await.unwrap();
    let mut whole = world.db.pool.begin().await.unwrap();
    for n in 0..250 {
        let request = new_request("erp", &format!("INV-{n}"), PAYLOAD, "run-1", n);
        requests::enqueue(&mut whole, &request).await.unwrap();
    }
    whole.commit().await.unwrap();
    dispatch_all(&mut world).await;
    assert_eq!(receiver.effects().all().len(), 250);
    older.commit().await.unwrap();
    dispatch_all(&mut world).await;
    let effects = receiver.effects().all();
    let keys: HashSet<_> = effects.iter().map(|e| e.key.clone().unwrap()).collect();
    let references: HashSet<_> = effects.iter().map(|e| e.reference.clone()).collect();
    assert_eq!((effects.len(), keys.len(), references.len()), (251, 251, 251));
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 251);
}

#[tokio::test]
async fn case_014_a_daemon_whose_connections_were_cut_picks_up_by_its_next_look() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [wide(&receiver, 16)];
    let home = World::new(&entries).await;
    let mut daemon = World::over(Database::again(&home.db.url).await, &entries, 1, "k1").await;
    for n in 0..5 {
        sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
            .execute(&home.db.pool)
            .await
            .unwrap();
        let id = home.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
        // Nothing is subscribed to, so nothing has to be subscribed to again.
        daemon.dispatch().await;
        assert_eq!(home.state(id).await, "sent", "round {n}");
    }
}

/// Postgres is gone.
struct Gone(Arc<AtomicU32>);

impl Step for Gone {
    const NAME: &'static str = "gone";

    async fn step(&mut self) -> Result<Progress, StoreError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Database(sqlx::Error::PoolClosed))
    }
}

#[tokio::test(start_paused = true)]
async fn case_017_a_loop_without_its_database_neither_spins_nor_stays_away() {
    let steps = Arc::new(AtomicU32::new(0));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let pace = Pace { busy: Duration::ZERO, idle_min: Duration::from_millis(5), idle_max: Duration::from_millis(50) };
    let (wake, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    let driven = tokio::spawn(drive(
        Gone(Arc::clone(&steps)),
        pace,
        wake,
        telemetry::progress::Progress::new(clock),
        stop.clone(),
    ));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let in_a_minute = steps.load(Ordering::SeqCst);
    assert!((6..30).contains(&in_a_minute), "{in_a_minute} looks in a minute");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(steps.load(Ordering::SeqCst) > in_a_minute, "it looks again within ten seconds");
    stop.cancel();
    driven.await.unwrap();
}

#[tokio::test]
async fn case_018_a_large_payload_never_costs_the_caller_its_own_transaction() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[wide(&receiver, 16)]).await;
    sqlx::query("create table invoice (reference text)").execute(&world.db.pool).await.unwrap();
    for (n, text) in ["x".repeat(20_000), "é".repeat(7999), "€".repeat(8000)].into_iter().enumerate() {
        let reference = format!("INV-{n}");
        let mut business = world.db.pool.begin().await.unwrap();
        sqlx::query("insert into invoice values ($1)").bind(&reference).execute(&mut *business).await.unwrap();
        let payload = format!(r#"{{"text":"{text}"}}"#);
        requests::enqueue(&mut business, &new_request("erp", &reference, &payload, "run-1", 1 + n as i64))
            .await
            .unwrap();
        business.commit().await.unwrap();
    }
    dispatch_all(&mut world).await;
    assert_eq!((count(&world, "invoice").await, receiver.effects().all().len()), (3, 3));
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 3);
}

#[tokio::test]
async fn case_020_what_a_dead_daemon_held_is_taken_over_within_a_lease_and_the_rest_flows_at_once() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let latch = Arc::new(Latch::default());
    let entries = [wide(&receiver, 20)];
    let mut world = World::new(&entries).await;
    for n in 0..120 {
        world.enqueue("erp", &format!("INV-{n}"), PAYLOAD).await;
    }
    let hold = Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) };
    receiver.faults().add(Stage::Act, When::Any, 20, hold);
    let held = Arc::clone(&latch);
    let dead = killed_after(&world.db.url, &entries, async move |doomed: &mut World| {
        doomed.dispatcher.step().await.unwrap();
        assert!(held.arrived(20, SOON).await);
        doomed.worker
    })
    .await;
    latch.release();
    assert_eq!(count(&world, "settled.intents where state = 'in_flight'").await, 20);
    dispatch_all(&mut world).await;
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 100, "the others wait for nobody");
    world.turn(30);
    world.reaper.step().await.unwrap();
    assert_eq!(count(&world, "settled.intents where state = 'unknown'").await, 20);
    for _ in 0..4 {
        world.ask().await;
        world.turn(60);
    }
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 120);
    assert_eq!(count(&world, &format!("settled.attempts where worker = '{dead}' and closed_at is null")).await, 0);
    assert_eq!(count(&world, "settled.queue").await, 0);
    assert_eq!(receiver.effects().all().len(), 120);
    assert!(receiver.effects().duplicates().is_empty());
}

#[tokio::test]
async fn a_transaction_that_took_lower_ids_and_commits_later_is_sent_whole() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[wide(&receiver, 50)]).await;
    let mut slow = world.db.pool.begin().await.unwrap();
    for n in 0..20 {
        requests::enqueue(&mut slow, &new_request("erp", &format!("EARLY-{n}"), PAYLOAD, "slow", n)).await.unwrap();
    }
    for n in 0..20 {
        world.enqueue("erp", &format!("LATE-{n}"), PAYLOAD).await;
    }
    dispatch_all(&mut world).await;
    assert_eq!(receiver.effects().all().len(), 20);
    world.turn(5);
    slow.commit().await.unwrap();
    dispatch_all(&mut world).await;
    assert_eq!(receiver.effects().all().len(), 40);
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 40);
}

#[tokio::test]
async fn a_hundred_transactions_that_are_rolled_back_send_nothing() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[wide(&receiver, 50)]).await;
    for n in 0..100 {
        let mut business = world.db.pool.begin().await.unwrap();
        requests::enqueue(&mut business, &new_request("erp", &format!("INV-{n}"), PAYLOAD, "run-1", n)).await.unwrap();
        if n % 10 == 0 {
            // A dispatcher that looks meanwhile must not see it.
            dispatch_all(&mut world).await;
        }
        business.rollback().await.unwrap();
    }
    dispatch_all(&mut world).await;
    assert_eq!((receiver.faults().count(Stage::Act), count(&world, "settled.intents").await), (0, 0));
}
