//! Thirty SIGKILLs: after the bytes and before the answer, and at every crash point.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::process::Signal;
use settled::demo::fakes::faults::{Fault, Faults, Stage, Subject, When};

use crate::{
    count::{AT_REST, Count},
    house::{CHANNELS, CODES, House, INVOICES, ORDERS},
    process::{PATIENCE, Process},
};

const KILLS: usize = 30;
const INTENTS: usize = 300;
/// Asked for in each life of the daemon; the rest where a life is long, and when it lives on.
const A_LIFE: usize = 8;
/// Work that has not led to the death of the daemon by then is followed by more.
const LONG: Duration = Duration::from_secs(3);

/// So often more work follows before it is killed wherever it is.
const LIVES_ON: u32 = 3;

/// How one life of the daemon ends.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// The downstream has read and acted and kills before it answers, at the n-th request from now.
    BeforeAnswer(&'static str, u32),
    /// At a crash point, the n-th time.
    At(&'static str, u32),
}

/// Points come twice, downstreams most of the time.
fn deaths() -> Vec<Death> {
    use Death::{At, BeforeAnswer};
    let mut deaths = vec![
        BeforeAnswer(ORDERS, 1),
        BeforeAnswer(INVOICES, 2),
        At("claim-before-commit", 1),
        BeforeAnswer(CODES, 3),
        At("claim-after-commit", 2),
        BeforeAnswer(ORDERS, 3),
        At("send-before-result", 1),
        BeforeAnswer(INVOICES, 1),
        At("reap-before-commit", 1),
        BeforeAnswer(CODES, 1),
        At("result-before-write", 2),
        BeforeAnswer(ORDERS, 2),
        At("reconcile-after-look-up", 1),
        BeforeAnswer(INVOICES, 3),
        At("result-after-write", 1),
        BeforeAnswer(CODES, 2),
        At("reconcile-before-commit", 2),
    ];
    deaths.extend([
        At("claim-before-commit", 2),
        At("claim-after-commit", 1),
        BeforeAnswer(ORDERS, 1),
        At("send-before-result", 4),
        At("result-before-write", 1),
        BeforeAnswer(INVOICES, 2),
        At("result-after-write", 3),
        BeforeAnswer(CODES, 3),
        // The life before has left an attempt open, or there would be nothing to reap.
        At("reap-before-commit", 1),
        At("reconcile-after-look-up", 3),
        BeforeAnswer(ORDERS, 3),
        At("reconcile-before-commit", 1),
        BeforeAnswer(INVOICES, 1),
    ]);
    deaths
}

fn faults<'h>(house: &'h House, destination: &str) -> &'h Faults {
    match destination {
        ORDERS => house.orders.faults(),
        INVOICES => house.smtp.faults(),
        _ => house.sms.faults(),
    }
}

/// Gives a life its end.
fn begin(house: &House, death: Death) -> Process {
    match death {
        Death::At(point, nth) => house.serve(&[("SETTLED_FAILPOINTS", &format!("{point}:{nth}"))]),
        Death::BeforeAnswer(destination, nth) => {
            let daemon = house.serve(&[]);
            let left = AtomicU32::new(nth);
            // Counted from now on; a rule of the fake counts from its start.
            let when = When::Matching(Arc::new(move |_: &Subject<'_>| left.fetch_sub(1, Ordering::SeqCst) == 1));
            faults(house, destination).add(Stage::Act, when, 1, Fault::KillBeforeAnswer(daemon.killer()));
            daemon
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_kills_lose_nothing_and_double_nothing() {
    let house = House::build(|_| {}).await;
    let deaths = deaths();
    assert_eq!(deaths.len(), KILLS);
    let mut asked = 0;
    // A business that has run for a while: what is in doubt later has elder witnesses.
    let daemon = house.serve(&[]);
    daemon.up().await;
    for _ in CHANNELS {
        let first = ask(&house, &mut asked).await;
        house.until_state(first, "sent").await;
    }
    daemon.signal(Signal::TERM);
    assert!(daemon.end(PATIENCE).await.success(), "{}", daemon.last_words());
    for death in deaths {
        let daemon = begin(&house, death);
        for number in 0..A_LIFE {
            // The first of each channel come while it starts, the others while it works.
            if number == CHANNELS.len() {
                daemon.says("settled is up").await;
            }
            ask(&house, &mut asked).await;
        }
        let mut longer = 0;
        while !daemon.is_over(LONG).await {
            longer += 1;
            if longer > LIVES_ON {
                // What its point waits for does not come in this life; any other moment will do.
                daemon.signal(Signal::KILL);
            }
            ask(&house, &mut asked).await;
        }
        daemon.killed().await;
    }
    assert!(asked < INTENTS, "nothing is left for the survivor");
    let daemon = house.serve(&[]);
    daemon.up().await;
    // A younger witness is a send that began when no byte of the doubtful ones could leave any more.
    let closed = "select not exists (select from settled.attempts where lease_until > clock_timestamp())";
    house.until("every lease has ended", PATIENCE, closed).await;
    while asked < INTENTS {
        let last = ask(&house, &mut asked).await;
        if asked % CHANNELS.len() == 0 {
            house.until_state(last, "sent").await;
        }
    }
    house.until("everything is settled or with a person", PATIENCE * 2, AT_REST).await;
    // Where absence can be proven, nobody is needed; by the lag alone a person decides.
    let proven = format!("select bool_and(state = 'sent') from settled.intents where destination <> '{CODES}'");
    house.until("orders and invoices are sent", PATIENCE * 2, &proven).await;
    let count = Count::of(&house).await;
    println!("kills={KILLS} {count}");
    count.assert_clean();
    assert_eq!(count.intents, INTENTS);
}

async fn ask(house: &House, asked: &mut usize) -> uuid::Uuid {
    let destination = CHANNELS[*asked % CHANNELS.len()];
    *asked += 1;
    house.ask(destination, &format!("K-{asked:04}")).await
}
