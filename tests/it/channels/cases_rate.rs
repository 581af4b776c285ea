//! Cases of kind RATE, and what a destination is spared: rates, pauses it asks for, slow restarts. `tests/CASES.md` names them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use settled::{
    clock::{Clock, TestClock},
    demo::fakes::{
        faults::{Fault, Stage, When},
        webhook::Webhook,
    },
    engine::runner::{Progress, Step},
};

use crate::support::{
    fragments::{mute_webhook, webhook},
    world::World,
};

const PAYLOAD: &str = r#"{"n":1}"#;

/// Says 429 to whatever comes beyond `limit` in one second of the turned clock, and counts.
struct Narrow {
    clock: Arc<TestClock>,
    start: DateTime<Utc>,
    limit: u64,
    second: AtomicU64,
    in_second: AtomicU64,
    /// Asked and refused, in the first minute and later.
    asked: [AtomicU64; 2],
    refused: [AtomicU64; 2],
}

impl Narrow {
    fn new(clock: &Arc<TestClock>, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            start: clock.now(),
            limit,
            second: AtomicU64::new(0),
            in_second: AtomicU64::new(0),
            asked: Default::default(),
            refused: Default::default(),
        })
    }

    fn is_too_much(&self) -> bool {
        let gone = (self.clock.now() - self.start).to_std().unwrap().as_secs();
        if self.second.swap(gone, Ordering::SeqCst) != gone {
            self.in_second.store(0, Ordering::SeqCst);
        }
        let part = usize::from(gone >= 60);
        self.asked[part].fetch_add(1, Ordering::SeqCst);
        let too_much = self.in_second.fetch_add(1, Ordering::SeqCst) >= self.limit;
        if too_much {
            self.refused[part].fetch_add(1, Ordering::SeqCst);
        }
        too_much
    }

    fn behind(self: &Arc<Self>, receiver: &Webhook) {
        let narrow = Arc::clone(self);
        let when = When::Matching(Arc::new(move |_| narrow.is_too_much()));
        receiver.faults().add(Stage::Act, when, u64::MAX, Fault::Status { code: 429, act: false });
    }
}

/// So many due intents by one statement, as a migration or a month's end makes them.
async fn flood(world: &World, destination: &str, many: i64) {
    sqlx::query(
        "select settled.enqueue(destination => $1, reference => 'INV-' || n, payload => '{\"n\":1}', run_id => 'run-' || n,
           step => 1, options => '{\"tenant\": \"acme\"}') from generate_series(1, $2) n",
    )
    .bind(destination)
    .bind(many)
    .execute(&world.db.pool)
    .await
    .unwrap();
}

async fn count(world: &World, what: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {what}")))
        .fetch_one(&world.db.pool)
        .await
        .unwrap()
}

fn limited(receiver: &Webhook, limits: &str) -> String {
    webhook("erp", receiver, "", "").replace("[limits]", &format!("[limits]\n{limits}"))
}

#[tokio::test]
async fn case_044_after_an_outage_five_thousand_trickle_into_a_receiver_that_takes_ten_a_second() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[webhook("erp", &receiver, "", "")]).await;
    receiver.door().refuse().await.unwrap();
    flood(&world, "erp", 5000).await;
    for _ in 0..5 {
        world.dispatch().await;
        world.turn(10);
    }
    receiver.door().accept().await.unwrap();
    let narrow = Narrow::new(&world.clock, 10);
    narrow.behind(&receiver);
    let mut steps = 0;
    let of = |counts: &[AtomicU64; 2]| [counts[0].load(Ordering::SeqCst), counts[1].load(Ordering::SeqCst)];
    let taken = || of(&narrow.asked).iter().sum::<u64>() - of(&narrow.refused).iter().sum::<u64>();
    while taken() < 5000 {
        world.dispatch().await;
        world.clock.advance(Duration::from_millis(200));
        steps += 1;
        assert!(steps < 12 * 60 * 5, "{} of 5000 after twelve minutes", taken());
    }
    let (asked, refused) = (of(&narrow.asked), of(&narrow.refused));
    assert!(refused[1] * 20 < asked[1], "{refused:?} of {asked:?} were too much");
    assert_eq!(count(&world, "settled.intents where state = 'sent'").await, 5000);
    assert_eq!(count(&world, "settled.escalations").await, 0);
    assert!(receiver.effects().duplicates().is_empty());
}

#[tokio::test]
async fn a_declared_rate_holds_for_two_daemons_together() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [limited(&receiver, "rate = { per_second = 4, burst = 6 }")];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    flood(&one, "erp", 60).await;
    tokio::join!(one.dispatch(), two.dispatch());
    assert_eq!(receiver.effects().all().len(), 6, "the burst, once for both");
    for second in 1..=5 {
        one.turn(1);
        tokio::join!(one.dispatch(), two.dispatch());
        assert_eq!(receiver.effects().all().len(), 6 + 4 * second);
    }
    one.turn(3600);
    tokio::join!(one.dispatch(), two.dispatch());
    assert_eq!(receiver.effects().all().len(), 32, "a pause saves up no more than the burst");
}

#[tokio::test]
async fn a_pause_that_is_asked_for_holds_the_whole_destination_for_every_daemon_and_no_other_one() {
    let (busy, free) = (Webhook::start().await.unwrap(), Webhook::start().await.unwrap());
    let reply = "[webhook.reply.overrides]\n503 = { outcome = \"deferred\", reason = \"sheds before it reads\" }\n";
    let entries = [
        webhook("busy", &busy, "", "").replace("[look_up]", &format!("{reply}[look_up]")),
        webhook("free", &free, "", ""),
    ];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    for code in [429, 503] {
        busy.faults().next(Fault::Status { code, act: false });
        let first = one.enqueue("busy", &format!("FIRST-{code}"), PAYLOAD).await;
        one.dispatch().await;
        assert_eq!(one.state(first).await, "pending");
        let other = one.enqueue("busy", &format!("OTHER-{code}"), PAYLOAD).await;
        let elsewhere = one.enqueue("free", &format!("FREE-{code}"), PAYLOAD).await;
        two.dispatch().await;
        assert_eq!((one.state(other).await.as_str(), one.state(elsewhere).await.as_str()), ("pending", "sent"));
        one.turn(2);
        two.dispatch().await;
        assert_eq!(one.state(other).await, "sent", "the pause is over");
        one.turn(3600);
        one.dispatch().await;
        assert_eq!(one.state(first).await, "sent");
        one.turn(3600);
    }
}

#[tokio::test]
async fn a_retry_after_of_minutes_is_waited_for_and_spends_no_attempt() {
    use super::fake::{Fake, reply_with};
    let fake = Fake::answering(reply_with("429 Too Many Requests", "Retry-After: 90\r\n", "")).await;
    let entry = format!(
        "name = \"erp\"\nchannel = \"webhook\"\nin_doubt = \"person\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
         [limits]\nattempts = 2\n[webhook]\nurl = \"{}\"\n",
        fake.url("/")
    );
    let mut world = World::new(&[entry]).await;
    let id = world.enqueue("erp", "INV-1", PAYLOAD).await;
    for attempt in 1..=6 {
        world.dispatch().await;
        assert_eq!(fake.seen().len(), attempt);
        world.turn(80);
        world.dispatch().await;
        assert_eq!(fake.seen().len(), attempt, "it asked for 90 s");
        world.turn(300);
    }
    assert_eq!(world.state(id).await, "pending");
    assert!(world.reasons(id).await.is_empty());
}

#[tokio::test]
async fn an_absolute_cap_of_open_unknowns_holds_for_two_daemons_together() {
    let receiver = Webhook::start().await.unwrap();
    let limits = "concurrency = 8\nopen_unknowns = 10\nbreaker_after = 1000\nlease_margin";
    let entries = [mute_webhook("erp", &receiver, "in_doubt = \"person\"")
        .replace("[limits]\nlease_margin", &format!("[limits]\n{limits}"))];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    receiver.faults().always(Fault::LoseReply);
    flood(&one, "erp", 60).await;
    for _ in 0..4 {
        tokio::join!(one.dispatch(), two.dispatch());
        one.turn(1);
    }
    assert_eq!(count(&one, "settled.intents where state = 'unknown'").await, 10);
    assert_eq!(count(&one, "settled.intents where state = 'pending'").await, 50, "they wait, and nothing is lost");
    assert_eq!(receiver.faults().count(Stage::Act), 10);
}

#[tokio::test]
async fn sends_under_way_count_against_the_cap_of_open_unknowns() {
    let receiver = Webhook::start().await.unwrap();
    let limits = "concurrency = 8\nopen_unknowns = 5\nlease_margin";
    let entries = [mute_webhook("erp", &receiver, "in_doubt = \"person\"")
        .replace("[limits]\nlease_margin", &format!("[limits]\n{limits}"))];
    let mut one = World::new(&entries).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    flood(&one, "erp", 20).await;
    // Sent and not yet written: for the ledger they are open.
    let ended = one.send_only().await;
    assert_eq!(ended.len(), 5);
    assert_eq!(two.dispatcher.step().await.unwrap(), Progress::Idle);
    one.write(ended).await;
    two.dispatch().await;
    assert_eq!(receiver.effects().all().len(), 10);
}

#[tokio::test]
async fn an_operator_sees_why_a_destination_waits_and_can_release_it() {
    use super::fake::{Fake, reply, reply_with};
    let wait = reply_with("429 Too Many Requests", "Retry-After: 555\r\n", r#"{"retry_after":555,"global":false}"#);
    let script = |bytes| vec![super::fake::Step::Request, super::fake::Step::Send(bytes), super::fake::Step::Close];
    let fake = Fake::play([wait, reply("200 OK", "{}"), reply("200 OK", "{}")].map(script)).await;
    let entry = format!(
        "name = \"erp\"\nchannel = \"webhook\"\nin_doubt = \"person\"\nallow_addresses = [\"127.0.0.0/8\"]\n[webhook]\nurl = \"{}\"\n",
        fake.url("/")
    );
    let mut world = World::new(&[entry]).await;
    let first = world.enqueue("erp", "INV-1", PAYLOAD).await;
    world.dispatch().await;
    let other = world.enqueue("erp", "INV-2", PAYLOAD).await;
    let mut conn = world.db.pool.acquire().await.unwrap();
    let shown = &settled::store::listing::destinations(&mut conn).await.unwrap()[0];
    assert!(shown.not_before.is_some() && shown.learned_a_second.is_some());
    world.dispatch().await;
    assert_eq!(world.state(other).await, "pending");
    assert!(settled::store::paces::release(&mut conn, "erp", "operator:test").await.unwrap());
    assert!(!settled::store::paces::release(&mut conn, "erp", "operator:test").await.unwrap());
    world.dispatch().await;
    assert_eq!((world.state(other).await.as_str(), world.state(first).await.as_str()), ("sent", "pending"));
    let shown = &settled::store::listing::destinations(&mut conn).await.unwrap()[0];
    assert_eq!((shown.not_before, shown.learned_a_second), (None, None));
}
