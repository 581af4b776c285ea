//! The account itself: what it must not overlook.

use rustix::process::Signal;
use settled::demo::fakes::ledger_of_effects::Arrived;

use crate::{
    count::Count,
    house::{House, ORDERS},
    process::PATIENCE,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_finds_second_effects_strangers_and_what_is_gone() {
    let house = House::build(|_| {}).await;
    let daemon = house.serve(&[]);
    let id = house.ask(ORDERS, "A-1").await;
    house.until_state(id, "sent").await;
    daemon.signal(Signal::TERM);
    assert!(daemon.end(PATIENCE).await.success(), "{}", daemon.last_words());
    let accepted = [(ORDERS.to_owned(), "A-1".to_owned())];
    let clean = Count::of_all(&house, &accepted).await;
    clean.assert_clean();
    assert_eq!((clean.intents, clean.sent), (1, 1));

    let effect = |reference: &str| Arrived { reference: reference.to_owned(), ..Arrived::default() };
    house.effects(ORDERS).record(effect("A-1"));
    let twice = Count::of_all(&house, &accepted).await;
    assert_eq!((twice.lost, twice.doubled), (0, 1), "{:?}", twice.wrong);
    house.effects(ORDERS).record(effect("Z-1"));
    let stranger = Count::of_all(&house, &accepted).await;
    assert_eq!((stranger.lost, stranger.doubled), (0, 2), "{:?}", stranger.wrong);

    let told = [accepted[0].clone(), (ORDERS.to_owned(), "A-2".to_owned())];
    let gone = Count::of_all(&house, &told).await;
    assert_eq!((gone.lost, gone.doubled), (1, 2), "{:?}", gone.wrong);
    // There, but nobody lives to send it and no person was told.
    house.ask(ORDERS, "A-2").await;
    let stuck = Count::of_all(&house, &told).await;
    assert_eq!((stuck.lost, stuck.doubled), (1, 2), "{:?}", stuck.wrong);
}
