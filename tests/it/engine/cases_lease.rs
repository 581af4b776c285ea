//! Cases of kind LEASE: clocks, zones and claims that nobody finishes. `tests/CASES.md` names them.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use settled::{
    clock::{Clock, SystemClock},
    demo::fakes::{
        faults::{Fault, Stage},
        latch::Latch,
        webhook::Webhook,
    },
    engine::{
        dispatcher::{Dispatcher, Sending},
        reaper::Reaper,
        runner::{Progress, Step},
    },
    store::requests,
};

use super::doubt::PAYLOAD;
use crate::support::{
    db::Database,
    fragments::webhook,
    process::killed_after,
    world::{World, new_request},
};

const SOON: Duration = Duration::from_secs(20);

/// A machine whose wall clock is wrong by so much; the database's clock is right.
struct Wrong(TimeDelta);

impl Clock for Wrong {
    fn now(&self) -> DateTime<Utc> {
        Utc::now() + self.0
    }

    fn sql_now(&self) -> Option<DateTime<Utc>> {
        None
    }

    fn boot(&self) -> Duration {
        SystemClock.boot()
    }
}

#[tokio::test]
async fn case_021_a_daemon_whose_clock_is_wrong_touches_no_claim_of_another() {
    for minutes in [10, -10] {
        let receiver = Arc::new(Webhook::start().await.unwrap());
        let latch = Arc::new(Latch::default());
        // A lease of half a minute.
        let entries = [webhook("erp", &receiver, "", "").replace("lease_margin = \"1s\"", "lease_margin = \"22s\"")];
        let mut right = World::new(&entries).await;
        right.clock.set_wall(Utc::now());
        receiver.faults().next(Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
        let id = right.enqueue("erp", "INV-1", PAYLOAD).await;
        right.clock.set_wall(Utc::now());
        right.dispatcher.step().await.unwrap();
        assert!(latch.arrived(1, SOON).await);
        let clock: Arc<dyn Clock> = Arc::new(Wrong(TimeDelta::minutes(minutes)));
        let sending = Sending { clock: Arc::clone(&clock), ..right.sending.clone() };
        let mut reaper = Reaper {
            pool: right.db.pool.clone(),
            fleet: Arc::clone(&right.fleet),
            clock,
            worker: sending.worker,
            watch: Arc::clone(&sending.watch),
            heartbeat_limit: Duration::from_secs(60),
            metrics: Arc::clone(&sending.metrics),
        };
        let mut dispatcher = Dispatcher::new(sending);
        assert_eq!(reaper.step().await.unwrap(), Progress::Idle);
        assert_eq!(dispatcher.step().await.unwrap(), Progress::Idle);
        assert_eq!(right.state(id).await, "in_flight");
        latch.release();
        right.finish().await;
        assert_eq!((right.state(id).await.as_str(), receiver.effects().all().len()), ("sent", 1));
    }
}

#[tokio::test]
async fn case_022_a_clock_that_goes_back_in_mid_send_shortens_no_lease() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    let latch = Arc::new(Latch::default());
    receiver.faults().next(Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    let id = one.enqueue("erp", "INV-1", PAYLOAD).await;
    one.dispatcher.step().await.unwrap();
    assert!(latch.arrived(1, SOON).await);
    let lease = "select lease_until::text from settled.attempts where intent_id = $1";
    let before = one.text(lease, id).await;
    one.clock.set_wall(one.clock.now() - TimeDelta::minutes(10));
    assert_eq!(two.reaper.step().await.unwrap(), Progress::Idle);
    two.dispatch().await;
    latch.release();
    one.finish().await;
    assert_eq!((one.state(id).await.as_str(), one.text(lease, id).await), ("sent", before));
    assert_eq!(receiver.effects().all().len(), 1);
}

#[tokio::test]
async fn case_025_a_slow_send_is_never_handed_to_a_second_daemon() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entries = [webhook("erp", &receiver, "", "")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    let latch = Arc::new(Latch::default());
    receiver.faults().next(Fault::HoldUntilReleased { act: true, latch: Arc::clone(&latch) });
    let id = one.enqueue("erp", "INV-1", PAYLOAD).await;
    one.dispatcher.step().await.unwrap();
    assert!(latch.arrived(1, SOON).await);
    // Inside the lease nobody touches it; after it, it is a doubt and not a job for somebody else.
    one.turn(8);
    assert_eq!(two.reaper.step().await.unwrap(), Progress::Idle);
    one.turn(2);
    assert_eq!(two.reaper.step().await.unwrap(), Progress::Worked(1));
    two.dispatch().await;
    assert_eq!(two.state(id).await, "unknown");
    latch.release();
    one.finish().await;
    two.dispatch().await;
    assert_eq!((two.state(id).await.as_str(), receiver.faults().count(Stage::Act)), ("sent", 1));
}

#[tokio::test]
async fn case_024_a_claim_whose_daemon_died_before_it_connected_moves_on() {
    let receiver = Arc::new(Webhook::start().await.unwrap());
    let entries = [webhook("erp", &receiver, "", "")];
    let mut world = World::new(&entries).await;
    world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    world.turn(5);
    let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
    killed_after(&world.db.url, &entries, async |doomed: &mut World| {
        // The claim is durable; the task that would connect has not run once.
        assert_eq!(doomed.dispatcher.step().await.unwrap(), Progress::Worked(1));
    })
    .await;
    assert_eq!((world.state(id).await.as_str(), receiver.faults().count(Stage::Act)), ("in_flight", 1));
    world.turn(30);
    world.reaper.step().await.unwrap();
    // Nobody knows how far it came, so it is asked about, and then it goes out.
    assert_eq!(world.state(id).await, "unknown");
    world.enqueue("erp", "INV-3", PAYLOAD).await;
    world.dispatch().await;
    world.turn(30);
    world.ask().await;
    world.turn(6);
    world.ask().await;
    world.dispatch().await;
    assert_eq!(world.state(id).await, "sent", "{:#?}", world.verdicts(id).await);
    assert_eq!(receiver.effects().count_by_reference("INV-2"), 1);
}

#[tokio::test]
async fn case_026_a_daemon_and_a_caller_in_another_time_zone_share_the_work() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [webhook("erp", &receiver, "", "")];
    let mut here = World::new(&entries).await;
    here.db.set("timezone", "Asia/Tokyo").await;
    let mut tokyo = World::over(Database::again(&here.db.url).await, &entries, 1, "k1").await;
    let zone: String = sqlx::query_scalar("show timezone").fetch_one(&tokyo.db.pool).await.unwrap();
    assert_eq!(zone, "UTC", "a daemon asks for UTC whatever the database says");
    let mut caller = tokyo.db.pool.acquire().await.unwrap();
    sqlx::query("set timezone = 'Asia/Tokyo'").execute(&mut *caller).await.unwrap();
    let mut ids = Vec::new();
    for n in 0..4 {
        let before = Utc::now();
        let request = new_request("erp", &format!("INV-{n}"), PAYLOAD, "run-1", n);
        let id = requests::enqueue(&mut caller, &request).await.unwrap().intent_id;
        let due: DateTime<Utc> = sqlx::query_scalar("select due_at from settled.intents where id = $1")
            .bind(id)
            .fetch_one(&here.db.pool)
            .await
            .unwrap();
        assert!((due - before).abs() < TimeDelta::seconds(30), "due at once: {due}");
        ids.push(id);
    }
    drop(caller);
    let leases = "select extract(epoch from lease_until - claimed_at)::text from settled.attempts where intent_id = $1";
    tokyo.dispatch().await;
    here.dispatch().await;
    for id in ids {
        assert_eq!(here.state(id).await, "sent");
        assert_eq!(here.text(leases, id).await.as_deref(), Some("9.000000"));
    }
    assert_eq!(receiver.effects().all().len(), 4);
}
