//! The connection to Postgres breaks while intents are claimed, sent, recorded and asked about.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use url::Url;

use crate::{
    count::{AT_REST, Count},
    db::Database,
    house::{CHANNELS, House},
    process::PATIENCE,
    proxy::Proxy,
};

const CUTS: usize = 10;
const INTENTS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_cuts_of_the_connection_to_postgres_lose_nothing_and_double_nothing() {
    let db = Database::new().await;
    let mut url = Url::parse(&db.url).unwrap();
    let host = (url.host_str().unwrap().to_owned(), url.port().unwrap_or(5432));
    let server = tokio::net::lookup_host(host).await.unwrap().next().unwrap();
    let proxy = Proxy::start(server).await;
    url.set_ip_host(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    url.set_port(Some(proxy.port())).unwrap();
    let house = House::over(db, |_| {}, Some(url.as_str())).await;
    let daemon = house.serve(&[]);
    daemon.up().await;
    let mut dice = StdRng::seed_from_u64(2291);
    let mut asked = 0;
    for cut in 1..=CUTS {
        while asked < INTENTS * cut / CUTS {
            house.ask(CHANNELS[asked % CHANNELS.len()], &format!("C-{asked:03}")).await;
            asked += 1;
        }
        // Somewhere in what six intents and the loops say to Postgres.
        assert!(proxy.cut_after(dice.random_range(500..40_000), PATIENCE).await, "{}", daemon.last_words());
    }
    assert!(daemon.ended().is_none(), "{}", daemon.last_words());
    house.until("everything is settled or with a person", PATIENCE * 2, AT_REST).await;
    let count = Count::of(&house).await;
    println!("cuts={CUTS} {count}");
    count.assert_clean();
    assert_eq!(count.intents, INTENTS);
}
