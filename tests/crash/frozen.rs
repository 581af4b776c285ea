//! SIGSTOP, takeover, SIGCONT: a process that was away for longer than its lease.

use std::sync::Arc;

use rustix::process::Signal;
use settled::demo::fakes::{
    faults::{Fault, Stage},
    latch::Latch,
};
use uuid::Uuid;

use crate::{
    count::Count,
    house::{House, INVOICES, ORDERS, destination, put},
    process::PATIENCE,
};

/// Everything that a late result could overwrite.
async fn row(house: &House, id: Uuid) -> String {
    let sql = "select concat_ws('|', i.state, i.attempt, i.provider_id, i.settled_at, i.marks::text, i.holds_effect,
                                string_agg(concat_ws('/', a.number, a.token, a.outcome, a.closed_at), ',' order by a.number))
                 from settled.intents i join settled.attempts a on a.intent_id = i.id where i.id = $1 group by i.id";
    sqlx::query_scalar(sql).bind(id).fetch_one(&house.db.pool).await.unwrap()
}

async fn late(house: &House, id: Uuid) -> Vec<String> {
    let sql = "select data#>>'{ended,outcome,outcome}' from settled.journal where intent_id = $1 and kind = 'evidence'";
    sqlx::query_scalar(sql).bind(id).fetch_all(&house.db.pool).await.unwrap()
}

/// A house whose orders wait long for a reply, so that the late one is still heard.
async fn patient() -> House {
    House::build(|settings| put(destination(settings, ORDERS), "timeouts", &[("reply", "60s")])).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_that_wakes_up_sends_nothing_late_and_overwrites_nothing() {
    let house = patient().await;
    let sleeper = house.serve(&[]);
    sleeper.up().await;
    let elder = house.ask(INVOICES, "F-0").await;
    house.until_state(elder, "sent").await;

    // One has arrived and is not answered; of the other not a byte of its message has left.
    let (answer, go_ahead) = (Arc::new(Latch::default()), Arc::new(Latch::default()));
    house.orders.faults().next(Fault::HoldUntilReleased { act: true, latch: Arc::clone(&answer) });
    house.smtp.faults().at(Stage::Data, Fault::HoldUntilReleased { act: true, latch: Arc::clone(&go_ahead) });
    let (arrived, held) = (house.ask(ORDERS, "F-1").await, house.ask(INVOICES, "F-2").await);
    assert!(answer.arrived(1, PATIENCE).await && go_ahead.arrived(1, PATIENCE).await, "{}", sleeper.last_words());
    sleeper.signal(Signal::STOP);

    let heir = house.serve(&[]);
    heir.up().await;
    // What has arrived is found, long before its lease ends: the sleeper's heart has stopped.
    house.until_state(arrived, "sent").await;
    // What has not is proven absent after its lease, between the elder witness and younger ones, and sent again.
    let mut others = Vec::new();
    while house.state(held).await != "sent" {
        assert!(others.len() < 100, "F-2 is {}:\n{}", house.state(held).await, heir.last_words());
        let other = house.ask(INVOICES, &format!("F-2-{}", others.len())).await;
        house.until_state(other, "sent").await;
        others.push(other);
        house.next_second().await;
    }
    assert_eq!(house.effects(INVOICES).count_by_reference("F-2"), 1);
    let before = (row(&house, arrived).await, row(&house, held).await);

    // Both doors open before the sleeper wakes: whatever it wants to do it can do at once.
    answer.release();
    go_ahead.release();
    sleeper.signal(Signal::CONT);
    let told = format!(
        "select count(distinct intent_id) = 2 from settled.journal
          where kind = 'evidence' and intent_id in ('{arrived}', '{held}')"
    );
    house.until("both late results are kept as evidence", PATIENCE, &told).await;
    assert_eq!(
        before,
        (row(&house, arrived).await, row(&house, held).await),
        "a late result has overwritten something"
    );
    let (first, second) = (late(&house, arrived).await, late(&house, held).await);
    assert_eq!((first, second), (vec!["sent".to_owned()], vec!["not_sent".to_owned()]));

    sleeper.signal(Signal::TERM);
    assert!(sleeper.end(PATIENCE).await.success(), "{}", sleeper.last_words());
    let count = Count::of(&house).await;
    println!("frozen: {count}");
    count.assert_clean();
    assert_eq!(count.sent, count.intents);
}
