//! Two hundred cuts of Postgres: at every byte of COMMITs and of their replies, in silence, and anywhere.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use settled::{
    demo::{cluster::Cluster, fakes::faults::Fault},
    store::requests::Verdict,
};
use url::Url;

use super::{
    caller::{Caller, Calls},
    stage::{Telling, Totals, cluster, database},
};
use crate::{
    count::{AT_REST, Count},
    house::{CHANNELS, House, ORDERS, destination},
    process::{PATIENCE, Process},
    proxy::{COMMIT, Cut, How, Proxy, REPLY, Way},
};

const CUTS: usize = 200;
const INTENTS: usize = 600;
/// A silence: longer than a caller waits, and longer than a worker may be silent before it counts as dead.
const SILENCE: Duration = Duration::from_secs(3);
/// Less than the lease of a question: one that nobody knows of must not wait for its end.
const SETTLED: Duration = PATIENCE;
const BETWEEN_CALLS: Duration = Duration::from_millis(200);

/// Transactions whose COMMIT is cut at every byte: what they are, and a statement that only they run.
const CLAIM: (&str, &str) = ("claims", "-- queue::open_attempts");
const RESULT: (&str, &str) = ("results", "-- queue::settle_sent");
const DOUBT: (&str, &str) = ("results in doubt", "-- attempts::close");
const VERDICT: (&str, &str) = ("verdicts", "-- journal::append");
/// Leases questions; a transaction by itself.
const LEASE: &str = "-- queue::claim_questions";
const CALL: &str = "-- requests::enqueue";

struct Scene<'s> {
    house: &'s House,
    proxy: &'s Proxy,
    daemons: [Process; 2],
    telling: Telling,
    cuts: usize,
}

/// The scene.
pub async fn play(seed: u64, totals: &mut Totals) {
    let telling = Telling::begin("cuts");
    let cluster = cluster().await;
    let db = database(&cluster).await;
    let (proxy, url) = proxied(&cluster, &db.url).await;
    // Many replies are lost on purpose: what the breaker would keep back is wanted.
    let change = |settings: &mut toml::Table| {
        let limits = destination(settings, ORDERS).get_mut("limits").and_then(toml::Value::as_table_mut).unwrap();
        limits.insert("breaker_after".to_owned(), 1_000.into());
    };
    let house = House::over(db, change, Some(&url)).await;
    let daemons = [house.serve(&[]), house.serve(&[])];
    for daemon in &daemons {
        daemon.up().await;
    }
    let calls = Calls::default();
    let mut caller = Caller::new(&url, &calls);
    for _ in CHANNELS {
        let first = caller.next("C").await;
        house.until_state(first, "sent").await;
    }
    let mut dice = StdRng::seed_from_u64(seed ^ 2);
    let mut scene = Scene { house: &house, proxy: &proxy, daemons, telling, cuts: 0 };
    scene.calls(&mut caller, &calls, &mut dice).await;
    for (what, statement) in [CLAIM, RESULT, DOUBT, VERDICT] {
        scene.sweep(what, statement, &mut caller, &calls, &mut dice).await;
    }
    scene.silences(&mut caller).await;
    scene.questions(&mut caller, &calls).await;
    while scene.cuts < CUTS {
        // Somewhere in what everybody says to Postgres.
        let cut = proxy.cut_after(dice.random_range(1..30_000), PATIENCE);
        tokio::pin!(cut);
        while tokio::time::timeout(BETWEEN_CALLS, &mut cut).await.is_err() {
            caller.next("C").await;
        }
        scene.cut("anywhere");
    }
    while calls.asked() < INTENTS {
        caller.next("C").await;
    }
    scene.both_live();
    house.until("everything is settled or with a person", SETTLED, AT_REST).await;
    let atomic = "select (select count(*) from public.orders) = (select count(*) from settled.intents)";
    house.until("the business has what the ledger has", PATIENCE, atomic).await;
    let count = Count::of_all(&house, &calls.accepted()).await;
    scene.telling.says(&format!("cuts={} repeats={} {count}", scene.cuts, calls.repeats()));
    count.assert_clean();
    totals.cuts += scene.cuts;
    totals.count += count;
}

/// A proxy before the cluster, and the URL of the database through it.
pub async fn proxied(cluster: &Cluster, url: &str) -> (Proxy, String) {
    let proxy = Proxy::start(([127, 0, 0, 1], cluster.port()).into()).await;
    let mut url = Url::parse(url).unwrap();
    url.set_port(Some(proxy.port())).unwrap();
    (proxy, url.to_string())
}

impl Scene<'_> {
    fn cut(&mut self, what: &str) {
        self.cuts += 1;
        if self.cuts.is_multiple_of(20) {
            self.telling.says(&format!("{} cuts, now {what}", self.cuts));
        }
    }

    fn both_live(&self) {
        for daemon in &self.daemons {
            assert!(daemon.ended().is_none(), "{} ended:\n{}", daemon.name, daemon.last_words());
        }
    }

    /// Calls whose COMMIT is cut are made again; the answers must fit what can have happened.
    async fn calls(&mut self, caller: &mut Caller<'_>, calls: &Calls, dice: &mut StdRng) {
        for (way, after) in places() {
            let how = how(dice);
            let cut = Cut { statement: CALL, commit: true, way, after, how };
            let done = self.proxy.arm(cut);
            let (destination, reference) = calls.next("C");
            let answer = caller.ask(destination, &reference).await;
            assert!(done.await.is_ok(), "{cut:?} did not come");
            let verdict = answer.receipt.verdict;
            match way {
                Way::Up if after < COMMIT => assert_eq!(verdict, Verdict::Accepted, "{cut:?}: half a COMMIT is none"),
                // The whole COMMIT has left; whether the server read it before the reset nobody can say.
                Way::Up => {}
                Way::Down if after < REPLY => assert_eq!(verdict, Verdict::Replayed, "{cut:?}: it had been committed"),
                Way::Down => {}
            }
            let whole = way == Way::Down && after == REPLY;
            assert_eq!(answer.tries > 1, !whole, "{cut:?} took {} tries", answer.tries);
            self.cut("calls");
        }
    }

    /// The COMMITs of the daemons' own transactions.
    async fn sweep(
        &mut self,
        what: &str,
        statement: &'static str,
        caller: &mut Caller<'_>,
        calls: &Calls,
        dice: &mut StdRng,
    ) {
        for (way, after) in places() {
            let how = how(dice);
            let cut = Cut { statement, commit: true, way, after, how };
            let mut done = self.proxy.arm(cut);
            let began = Instant::now();
            loop {
                if what == DOUBT.0 || what == VERDICT.0 {
                    self.doubt(caller, calls).await;
                } else {
                    caller.next("C").await;
                }
                if tokio::time::timeout(BETWEEN_CALLS, &mut done).await.is_ok() {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{cut:?} did not come:\n{}", self.daemons[0].last_words());
            }
            self.cut(what);
        }
    }

    /// Some calls, the reply to one of whose sends is lost.
    async fn doubt(&self, caller: &mut Caller<'_>, calls: &Calls) {
        for _ in 0..3 {
            let (destination, reference) = calls.next("C");
            if destination == ORDERS {
                self.house.orders.faults().for_reference(&reference, Fault::LoseReply);
            }
            caller.ask(destination, &reference).await;
        }
    }

    /// Questions are leased to a daemon that never hears of it; it lives on, so nobody takes them away from it.
    async fn questions(&mut self, caller: &mut Caller<'_>, calls: &Calls) {
        for after in 0..6 {
            let cut = Cut { statement: LEASE, commit: false, way: Way::Down, after, how: How::Reset };
            let mut done = self.proxy.arm(cut);
            loop {
                self.doubt(caller, calls).await;
                if tokio::time::timeout(BETWEEN_CALLS, &mut done).await.is_ok() {
                    break;
                }
            }
            self.cut("questions");
        }
    }

    /// Connections that swallow everything and say nothing.
    async fn silences(&mut self, caller: &mut Caller<'_>) {
        let how = How::Swallow(SILENCE);
        for statement in [CALL, CLAIM.1, RESULT.1] {
            for (way, after) in [(Way::Up, 0), (Way::Up, COMMIT), (Way::Down, 0), (Way::Down, REPLY)] {
                let done = self.proxy.arm(Cut { statement, commit: true, way, after, how });
                caller.next("C").await;
                assert!(tokio::time::timeout(PATIENCE, done).await.is_ok(), "nobody ran {statement}");
                self.cut("silent connections");
            }
        }
        for _ in 0..2 {
            self.proxy.fall_silent(SILENCE * 2);
            caller.next("C").await;
            self.cut("a silent network");
        }
    }
}

/// Every place in a COMMIT and in its reply.
fn places() -> impl Iterator<Item = (Way, usize)> {
    (0..=COMMIT).map(|after| (Way::Up, after)).chain((0..=REPLY).map(|after| (Way::Down, after)))
}

fn how(dice: &mut StdRng) -> How {
    if dice.random_bool(0.5) { How::Reset } else { How::Close }
}
