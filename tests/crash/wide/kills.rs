//! SIGKILLs by the hundred, two daemons at a time: at every crash point, while the downstream holds the reply, and anywhere.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use rustix::process::Signal;
use settled::{
    clock::SystemClock,
    demo::fakes::{
        faults::{Fault, Faults, Stage, Subject, When},
        latch::Latch,
    },
    engine::{
        fleet::Fleet,
        resolution::{self, Act, ActError, Person, Target, Words},
    },
    store::tokens::Kind,
};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::{
    caller::{Caller, Calls},
    stage::{Telling, Totals, cluster, database},
};
use crate::{
    count::{AT_REST, Count},
    house::{CHANNELS, CODES, House, INVOICES, ORDERS},
    points::POINTS,
    process::{PATIENCE, Process},
};

const INTENTS: usize = 1200;
/// Lives of each lane; those that end at crash points last longer.
const AT_POINTS: usize = 84;
const OF_SENDERS: usize = 114;
/// Asked for when a life begins; more where its end does not come.
const A_LIFE: usize = 3;
const BETWEEN_CALLS: Duration = Duration::from_millis(250);
/// A life whose end has not come by then is ended wherever it is.
const LONG: Duration = Duration::from_secs(8);
/// Needs a person's decision first, and those wait ten seconds.
const DECIDE: &str = "decide-before-commit";
/// Needs history that was lost: see `rewound`.
pub const QUARANTINE: &str = "quarantine-before-commit";

/// What both lanes share.
struct Scene<'s> {
    house: &'s House,
    calls: &'s Calls,
    /// Share of the lives that are lived.
    percent: usize,
    kills: AtomicUsize,
    by: Mutex<BTreeMap<String, usize>>,
    telling: Telling,
}

/// The scene.
pub async fn play(seed: u64, percent: usize, totals: &mut Totals) {
    let telling = Telling::begin("kills");
    let cluster = cluster().await;
    let house = House::over(database(&cluster).await, |_| {}, None).await;
    let calls = Calls::default();
    let mut caller = Caller::new(&house.db.url, &calls);
    // A business that has run for a while: what is in doubt later has elder witnesses.
    let daemon = house.serve(&[]);
    daemon.up().await;
    for _ in CHANNELS {
        let first = caller.next("K").await;
        house.until_state(first, "sent").await;
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.end(PATIENCE).await.success(), "{}", daemon.last_words());

    let (kills, by) = (AtomicUsize::new(0), Mutex::default());
    let scene = Scene { house: &house, calls: &calls, percent, kills, by, telling };
    tokio::join!(points(&scene, seed), senders(&scene, seed));
    let by = scene.by.lock().unwrap_or_else(PoisonError::into_inner).clone();
    scene.telling.says(&format!("{by:?}"));
    for point in POINTS.into_iter().filter(|point| *point != QUARANTINE && percent == 100) {
        assert!(by.contains_key(point), "no life ended at {point}: {by:?}");
    }
    let kills = scene.kills.load(Ordering::SeqCst);
    settle(&house, &mut caller, INTENTS * percent / 100, &scene.telling).await;
    let count = Count::of_all(&house, &calls.accepted()).await;
    scene.telling.says(&format!("kills={kills} {count}"));
    count.assert_clean();
    totals.kills += kills;
    totals.count += count;
}

/// The survivors finish: everything is settled or with a person.
async fn settle(house: &House, caller: &mut Caller<'_>, intents: usize, telling: &Telling) {
    let daemons = [house.serve(&[]), house.serve(&[])];
    for daemon in &daemons {
        daemon.up().await;
    }
    // A younger witness is a send that began when no byte of the doubtful ones could leave any more.
    let closed = "select not exists (select from settled.attempts where lease_until > clock_timestamp())";
    house.until("every lease has ended", PATIENCE, closed).await;
    let there = "select count(*) from settled.intents";
    let there: i64 = sqlx::query_scalar(there).fetch_one(&house.db.pool).await.unwrap();
    telling.says(&format!("{there} intents so far; the rest goes to the survivors"));
    for number in usize::try_from(there).unwrap()..intents.max(usize::try_from(there).unwrap() + 30) {
        let last = caller.next("K").await;
        if number % 30 == 0 {
            house.until_state(last, "sent").await;
        }
    }
    asked_until_settled(house, AT_REST).await;
    asked_until_settled(house, &proven()).await;
}

/// Where absence can be proven, nobody is needed; by the lag alone a person decides.
pub fn proven() -> String {
    format!("select bool_and(state = 'sent') from settled.intents where destination <> '{CODES}'")
}

/// What was asked in vain while nothing could be known is asked ever more rarely; a person who wants to see it asks at once. And
/// sends again what was refused only now, because a kill had made a doubt of it.
pub async fn asked_until_settled(house: &House, settled: &str) {
    let began = Instant::now();
    loop {
        let is: bool = sqlx::query_scalar(AssertSqlSafe(settled.to_owned())).fetch_one(&house.db.pool).await.unwrap();
        if is {
            return;
        }
        let late = if began.elapsed() > PATIENCE * 6 { open(house).await } else { Vec::new() };
        assert!(late.is_empty(), "after {:?} it is not so that {settled}:\n{}", began.elapsed(), late.join("\n"));
        let sooner = "update settled.queue set due_at = clock_timestamp()
                       where kind = 'ask' and leased_until is null and due_at > clock_timestamp() + interval '5 s'";
        sqlx::query(sooner).execute(&house.db.pool).await.unwrap();
        send_again_what_was_refused(house).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// What is not settled, in numbers, and what the last answers were: the database goes with the scene.
async fn open(house: &House) -> Vec<String> {
    let open = "select concat_ws(' ', count(*), i.destination, i.state, 'queue', q.kind, case when q.leased_until is not null then 'leased' end,
                                 'lease over for', max(now() - a.lease_until), 'last answer', max(l.why))
                  from settled.intents i
                  left join settled.queue q on q.intent_id = i.id
                  left join settled.attempts a on a.intent_id = i.id and a.closed_at is null
                  left join lateral (select j.data ->> 'why' as why from settled.journal j
                                      where j.intent_id = i.id and j.kind = 'look_up' order by j.id desc limit 1) l on true
                 where i.state <> 'sent' group by i.destination, i.state, q.kind, q.leased_until is not null";
    sqlx::query_scalar(open).fetch_all(&house.db.pool).await.unwrap()
}

impl Scene<'_> {
    fn died(&self, how: &str) {
        *self.by.lock().unwrap_or_else(PoisonError::into_inner).entry(how.to_owned()).or_default() += 1;
        let kills = self.kills.fetch_add(1, Ordering::SeqCst) + 1;
        if kills.is_multiple_of(20) {
            self.telling.says(&format!("{kills} kills, {} intents", self.calls.asked()));
        }
    }

    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.house.db.url, self.calls)
    }

    fn faults(&self, destination: &str) -> &Faults {
        match destination {
            ORDERS => self.house.orders.faults(),
            INVOICES => self.house.smtp.faults(),
            _ => self.house.sms.faults(),
        }
    }
}

/// One daemon that dies at crash points.
async fn points(scene: &Scene<'_>, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut deaths: Vec<&str> =
        POINTS.into_iter().filter(|point| ![DECIDE, QUARANTINE].contains(point)).cycle().take(AT_POINTS - 2).collect();
    deaths.shuffle(&mut dice);
    deaths.truncate(deaths.len() * scene.percent / 100);
    deaths.insert(deaths.len() / 4, DECIDE);
    deaths.insert(deaths.len() / 2, DECIDE);
    let mut caller = scene.caller();
    for point in deaths {
        let nth = if point == DECIDE { 1 } else { dice.random_range(1..=3) };
        if point == DECIDE {
            decisions(scene, &mut caller, 6).await;
        }
        let daemon = scene.house.serve(&[("SETTLED_FAILPOINTS", &format!("{point}:{nth}"))]);
        for _ in 0..A_LIFE {
            caller.next("K").await;
        }
        let began = Instant::now();
        let at_most = if point == DECIDE { LONG * 2 } else { LONG };
        while !daemon.is_over(BETWEEN_CALLS).await && began.elapsed() < at_most {
            caller.next("K").await;
        }
        let elsewhere = daemon.ended().is_none();
        if elsewhere {
            // What its point waits for does not come in this life; any other moment will do.
            daemon.signal(Signal::KILL);
        }
        daemon.killed().await;
        scene.died(if elsewhere { "anywhere" } else { point });
    }
}

/// Intents that were refused, and a person's word to send them again.
async fn decisions(scene: &Scene<'_>, caller: &mut Caller<'_>, many: usize) {
    let house = scene.house;
    // Lives until everything is refused, whatever the other lane does.
    let daemon = house.serve(&[]);
    let mut ids = Vec::new();
    while ids.len() < many {
        let (destination, reference) = scene.calls.next("K");
        if destination == ORDERS {
            house.orders.faults().for_reference(&reference, Fault::Status { code: 400, act: false });
        }
        let id = caller.ask(destination, &reference).await.receipt.intent_id;
        if destination == ORDERS {
            ids.push(id);
        }
    }
    for id in ids {
        // A kill in that send has made a doubt of it: then there is nothing to decide yet.
        let ended = format!("select state not in ('pending', 'in_flight') from settled.intents where id = '{id}'");
        house.until("it is refused", PATIENCE, &ended).await;
    }
    send_again_what_was_refused(house).await;
    daemon.signal(Signal::TERM);
    assert!(daemon.end(PATIENCE).await.success(), "{}", daemon.last_words());
}

/// A person's word about everything that was refused: it is to be sent again.
async fn send_again_what_was_refused(house: &House) {
    let nothing_served = Fleet::new(Vec::new(), Box::new(|_| Ok(None)));
    let person = Person { principal: "ada".to_owned(), kind: Kind::Responder, tenant: None };
    let refused = "select i.id, i.reference, i.version from settled.intents i
                     join settled.escalations e on e.intent_id = i.id and e.reason = 'refused' and e.closed_at is null
                    where i.state = 'failed'";
    let refused: Vec<(Uuid, String, i64)> = sqlx::query_as(refused).fetch_all(&house.db.pool).await.unwrap();
    for (id, reference, version) in refused {
        let words = Words {
            reason: Some("the receiver has repaired it".to_owned()),
            reference: Some(reference),
            ..Words::default()
        };
        let act = Act::read("send_again", &words).unwrap();
        let target = Target::Intent(id);
        let done =
            resolution::act(&house.db.pool, &nothing_served, &SystemClock, &person, target, &act, Some(version)).await;
        // An audit may have met it in this moment; whoever looks again sees it.
        assert!(matches!(done, Ok(_) | Err(ActError::Stale { .. })), "{done:?}");
    }
}

/// One daemon that dies while the downstream holds its reply, or after any time; or carrying out a decision, since nobody
/// knows which of the two will.
async fn senders(scene: &Scene<'_>, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed ^ 1);
    let mut caller = scene.caller();
    for number in 0..OF_SENDERS * scene.percent / 100 {
        let daemon = scene.house.serve(&[("SETTLED_FAILPOINTS", &format!("{DECIDE}:1"))]);
        for _ in 0..A_LIFE {
            caller.next("K").await;
        }
        let destination = CHANNELS[number % CHANNELS.len()];
        let (until, nth) = (Duration::from_millis(dice.random_range(20..2500)), dice.random_range(1..=3));
        let in_mid_send = if number % 5 == 4 {
            // Also while it is still starting.
            daemon.is_over(until).await;
            false
        } else {
            in_mid_send(scene, &mut caller, &daemon, destination, nth).await
        };
        let how = if in_mid_send {
            format!("mid-send {destination}")
        } else if daemon.ended().is_some() {
            DECIDE.to_owned()
        } else {
            daemon.signal(Signal::KILL);
            "anywhere".to_owned()
        };
        daemon.killed().await;
        scene.died(&how);
    }
}

/// Kills this daemon when the downstream has its bytes and holds the reply. False: it did not come to that.
async fn in_mid_send(
    scene: &Scene<'_>,
    caller: &mut Caller<'_>,
    daemon: &Process,
    destination: &str,
    nth: u32,
) -> bool {
    let began = Instant::now();
    let mut nth = nth;
    while began.elapsed() < LONG && daemon.ended().is_none() {
        let held = Held::arm(scene.faults(destination), nth);
        let arrived = loop {
            if held.latch.arrived(1, BETWEEN_CALLS).await {
                break true;
            }
            if began.elapsed() >= LONG || daemon.ended().is_some() {
                break false;
            }
            caller.next("K").await;
        };
        held.off.store(true, Ordering::SeqCst);
        // Either daemon may have sent it; the other one goes on.
        let ours = arrived && held.sender(scene.house).await.is_some_and(|worker| Some(worker) == daemon.worker());
        let alive = daemon.ended().is_none();
        if ours && alive {
            (daemon.killer())();
        }
        held.latch.release();
        if ours {
            return alive;
        }
        nth = 1;
    }
    false
}

/// A request that has arrived, was acted upon and is not answered.
struct Held {
    latch: Arc<Latch>,
    key: Arc<Mutex<Option<String>>>,
    off: Arc<AtomicBool>,
}

impl Held {
    /// Holds the n-th from now.
    fn arm(faults: &Faults, nth: u32) -> Self {
        let this = Self { latch: Arc::default(), key: Arc::default(), off: Arc::default() };
        let (key, off, left) = (Arc::clone(&this.key), Arc::clone(&this.off), AtomicU32::new(nth));
        let when = move |subject: &Subject<'_>| {
            let its_turn = !off.load(Ordering::SeqCst) && left.fetch_sub(1, Ordering::SeqCst) == 1;
            if its_turn {
                *key.lock().unwrap_or_else(PoisonError::into_inner) = subject.key.map(str::to_owned);
            }
            its_turn
        };
        let hold = Fault::HoldUntilReleased { act: true, latch: Arc::clone(&this.latch) };
        faults.add(Stage::Act, When::Matching(Arc::new(when)), 1, hold);
        this
    }

    /// The worker whose attempt it is.
    async fn sender(&self, house: &House) -> Option<Uuid> {
        let key = self.key.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let sql = "select a.worker from settled.attempts a join settled.intents i on i.id = a.intent_id
                    where i.key = $1 and a.closed_at is null order by a.number desc limit 1";
        sqlx::query_scalar(sql).bind(key).fetch_optional(&house.db.pool).await.unwrap()
    }
}
