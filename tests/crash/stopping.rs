//! SIGTERM in the middle of sends (cases 143 and 144).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use settled::demo::fakes::{
    faults::{Fault, Stage, When},
    latch::Latch,
};
use uuid::Uuid;

use crate::{
    count::Count,
    house::{House, INVOICES, ORDERS, destination, put},
    process::{PATIENCE, Process},
};

const STOPPING: &str = "running sends may finish";

/// Replies may take long; `drain` is what a stopping daemon grants them.
async fn house(drain: &str) -> House {
    let change = |settings: &mut toml::Table| {
        put(destination(settings, ORDERS), "timeouts", &[("reply", "60s")]);
        put(destination(settings, INVOICES), "timeouts", &[("command", "20s")]);
        put(settings, "dispatcher", &[("drain", drain)]);
    };
    House::build(change).await
}

/// The next `times` orders act and wait at the latch with their answer.
fn hold(house: &House, times: u64) -> Arc<Latch> {
    let latch = Arc::new(Latch::default());
    let fault = Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) };
    house.orders.faults().add(Stage::Act, When::Any, times, fault);
    latch
}

async fn in_flight(house: &House, daemon: &Process, names: &[&str], latch: &Latch) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for name in names {
        ids.push(house.ask(ORDERS, name).await);
    }
    assert!(latch.arrived(names.len(), PATIENCE).await, "{}", daemon.last_words());
    ids
}

async fn evidence(house: &House, id: Uuid) -> (String, serde_json::Value) {
    let sql = "select a.outcome, a.report->'report' from settled.attempts a where a.intent_id = $1 and a.number = 1";
    sqlx::query_as(sql).bind(id).fetch_one(&house.db.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_143_sigterm_with_five_sends_in_flight_records_them_and_exits_zero() {
    let house = house("3s").await;
    let daemon = house.serve(&[]);
    daemon.up().await;
    let answered = hold(&house, 4);
    let four = in_flight(&house, &daemon, &["S-1", "S-2", "S-3", "S-4"], &answered).await;
    let never = hold(&house, 1);
    let hanging = in_flight(&house, &daemon, &["S-5"], &never).await[0];

    daemon.signal(Signal::TERM);
    assert!(daemon.says(STOPPING).await);
    let began = Instant::now();
    let after_the_signal = house.ask(ORDERS, "S-6").await;
    answered.release();
    let status = daemon.end(Duration::from_secs(30)).await;
    assert_eq!(status.code(), Some(0), "{}", daemon.last_words());
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?} for a drain of 3 s", began.elapsed());

    for id in four {
        assert_eq!(house.state(id).await, "sent");
    }
    assert_eq!(house.state(hanging).await, "unknown");
    let (outcome, report) = evidence(&house, hanging).await;
    assert_eq!((outcome.as_str(), report["stage"].as_str()), ("ambiguous", Some("handed")), "{report}");
    assert!(report["bytes_handed"].as_u64().is_some_and(|bytes| bytes > 100), "{report}");
    assert_eq!(house.state(after_the_signal).await, "pending");

    let next = house.serve(&[]);
    next.up().await;
    house.until_state(after_the_signal, "sent").await;
    house.until_state(hanging, "sent").await;
    let count = Count::of(&house).await;
    println!("sigterm: {count}");
    count.assert_clean();
    assert_eq!(count.sent, 6);
}

/// The kernel gives process number one no default actions: a SIGTERM that nobody handles does nothing there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_143_process_number_one_obeys_sigterm() {
    let allowed = std::process::Command::new("unshare").args(["--fork", "--pid", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("SETTLED_REQUIRE_REAL").is_none(), "this user may not make a namespace");
        println!("skipped: this user may not make a namespace");
        return;
    }
    let house = house("3s").await;
    let daemon = house.serve_as_first();
    daemon.up().await;
    let id = house.ask(ORDERS, "P-1").await;
    house.until_state(id, "sent").await;
    daemon.signal_child(Signal::TERM);
    assert_eq!(daemon.end(Duration::from_secs(20)).await.code(), Some(0), "{}", daemon.last_words());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_143_a_second_sigterm_speeds_up() {
    let house = house("10m").await;
    let daemon = house.serve(&[]);
    daemon.up().await;
    let never = hold(&house, 1);
    let hanging = in_flight(&house, &daemon, &["T-1"], &never).await[0];
    daemon.signal(Signal::TERM);
    assert!(daemon.says(STOPPING).await);
    assert!(daemon.ended().is_none(), "it did not wait for its send:\n{}", daemon.last_words());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(Duration::from_secs(20)).await.code(), Some(0), "{}", daemon.last_words());
    assert_eq!(house.state(hanging).await, "unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_144_what_was_claimed_and_not_begun_is_given_back_at_once() {
    let house = house("3s").await;
    let daemon = house.serve(&[]);
    daemon.up().await;
    // Claims get stuck in the middle of their transaction.
    let mut lock = house.db.pool.begin().await.unwrap();
    sqlx::query("lock table settled.attempts in share row exclusive mode").execute(&mut *lock).await.unwrap();
    let mut ids = Vec::new();
    for number in 1..=10 {
        ids.push(house.ask(ORDERS, &format!("U-{number}")).await);
    }
    let stuck = "select exists (select from pg_stat_activity where datname = current_database()
                                 and wait_event_type = 'Lock' and query like '%open_attempts%')";
    house.until("a claim is under way", PATIENCE, stuck).await;
    daemon.signal(Signal::TERM);
    assert!(daemon.says(STOPPING).await);
    lock.rollback().await.unwrap();
    assert_eq!(daemon.end(Duration::from_secs(30)).await.code(), Some(0), "{}", daemon.last_words());
    assert!(house.effects(ORDERS).all().is_empty(), "it went on sending after the signal");
    for id in &ids {
        assert_eq!(house.state(*id).await, "pending");
    }
    let (given_back,): (i64,) = sqlx::query_as("select count(*) from settled.attempts where outcome = 'not_sent'")
        .fetch_one(&house.db.pool)
        .await
        .unwrap();
    assert!(given_back > 0, "nothing was claimed, so nothing was given back");

    let next = house.serve(&[]);
    next.up().await;
    let began = Instant::now();
    for id in ids {
        house.until_state(id, "sent").await;
    }
    assert!(began.elapsed() < Duration::from_secs(15), "another daemon needed {:?}", began.elapsed());
    Count::of(&house).await.assert_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_143_what_was_held_back_when_it_had_to_stop_was_not_sent() {
    let house = house("10m").await;
    let daemon = house.serve(&[]);
    daemon.up().await;
    // The relay does not ask for the message, so the final dot is still ours.
    let latch = Arc::new(Latch::default());
    house.smtp.faults().at(Stage::Data, Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    let id = house.ask(INVOICES, "V-1").await;
    assert!(latch.arrived(1, PATIENCE).await, "{}", daemon.last_words());
    daemon.signal(Signal::TERM);
    assert!(daemon.says(STOPPING).await);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(Duration::from_secs(20)).await.code(), Some(0), "{}", daemon.last_words());
    assert_eq!(house.state(id).await, "pending", "{:?}", evidence(&house, id).await);
    let next = house.serve(&[]);
    next.up().await;
    house.until_state(id, "sent").await;
    Count::of(&house).await.assert_clean();
}
