//! What may be asked of a destination, by all daemons together.

use settled::{
    demo::fakes::{faults::Fault, webhook::Webhook},
    engine::resolution::{self, Act, Person, Target},
    store::tokens::Kind,
};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    fragments::webhook,
    scripted::{Act as Answers, Scripted},
    world::World,
};

/// A question for each intent, twenty calls a minute.
pub fn by_key(receiver: &Webhook, per_minute: u32) -> String {
    let base = receiver.url();
    let text = webhook("erp", receiver, "", &format!("per_minute = {per_minute}"));
    let (head, _) = text.split_once("[look_up.http]").unwrap();
    format!(
        r#"{head}
[look_up.http]
per = "key"
url = "{base}/events?key={{key}}"
answer = {{ items = "/events", key_at = "/key", reference_at = "/reference", id_at = "/id" }}
pages = {{ next_at = "/next", max = 20 }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo-webhook" }} }}
"#
    )
}

async fn in_doubt(world: &mut World, receiver: &Webhook, how_many: usize) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for n in 0..how_many {
        let reference = format!("INV-{n}");
        receiver.faults().for_reference(&reference, Fault::LoseReply);
        ids.push(world.enqueue("erp", &reference, PAYLOAD).await);
        world.dispatch().await;
    }
    for id in &ids {
        assert_eq!(world.state(*id).await, "unknown");
    }
    world.turn(30);
    ids
}

async fn unknown(world: &World) -> i64 {
    sqlx::query_scalar("select count(*) from settled.intents where state = 'unknown'")
        .fetch_one(&world.db.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn two_daemons_together_make_no_more_calls_than_one_may() {
    let receiver = Webhook::start().await.unwrap();
    let entries = [by_key(&receiver, 20)];
    let mut one = World::new(&entries).await;
    in_doubt(&mut one, &receiver, 9).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    for _ in 0..6 {
        tokio::join!(one.ask(), two.ask());
    }
    let first = receiver.desk().asked().len();
    assert!((3..=20).contains(&first), "{first} calls in the first minute");
    let left = unknown(&one).await;
    assert!((1..9).contains(&left), "{left} are left");
    one.turn(30);
    for _ in 0..6 {
        tokio::join!(one.ask(), two.ask());
    }
    let second = receiver.desk().asked().len();
    assert!((first + 3..=30).contains(&second), "{second} calls in a minute and a half");
    let text = [&one, &two].map(|daemon| daemon.sending.metrics.text().unwrap()).concat();
    assert!(text.contains("settled_asking_calls_left{destination=\"erp\"}"), "{text}");
    assert!(text.contains("settled_look_up_calls_total{destination=\"erp\"}"), "{text}");
}

#[tokio::test]
async fn what_a_person_waits_for_is_asked_first() {
    let receiver = Webhook::start().await.unwrap();
    let mut world = World::new(&[by_key(&receiver, 5)]).await;
    let ids = in_doubt(&mut world, &receiver, 6).await;
    let last = *ids.last().unwrap();
    let person = Person { principal: "ada".to_owned(), kind: Kind::Responder, tenant: None };
    let pool = &world.db.pool;
    let act = resolution::act(pool, &world.fleet, &*world.clock, &person, Target::Intent(last), &Act::Ask, None).await;
    act.unwrap();
    world.ask().await;
    assert_eq!(unknown(&world).await, 5, "one question fits into the budget");
    assert_eq!(world.state(last).await, "sent");
}

#[tokio::test]
async fn a_downstream_that_asks_to_be_left_alone_is_left_alone_by_every_daemon_until_then() {
    let receiver = Webhook::start().await.unwrap();
    let busy = Scripted::new(|_| Answers::Reply(429, vec![("retry-after", "120".to_owned())], Vec::new())).await;
    let entries = [by_key(&receiver, 600).replace(&format!("{}/", receiver.url()), &format!("{}/", busy.base))];
    let entries = entries.map(|entry| entry.replace(&format!("{}/hook", busy.base), &receiver.hook_url()));
    let mut one = World::new(&entries).await;
    in_doubt(&mut one, &receiver, 2).await;
    let mut two = one.beside(&entries, 1, "k1").await;
    one.ask().await;
    let asked = busy.got().len();
    assert!(asked > 0);
    one.turn(119);
    tokio::join!(one.ask(), two.ask());
    assert_eq!((busy.got().len(), unknown(&one).await), (asked, 2));
    let text = [&one, &two].map(|daemon| daemon.sending.metrics.text().unwrap());
    assert!(text.iter().all(|t| t.contains("settled_asking_suspended{destination=\"erp\"} 1")), "{text:#?}");
    one.turn(2);
    two.ask().await;
    assert!(busy.got().len() > asked);
}
