//! A lost attempt may have used any secret that is still held: each of its keys is asked for, and absence needs all of them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use serde_json::json;
use settled::{domain::key::Spelling, store};
use uuid::Uuid;

use super::doubt::PAYLOAD;
use crate::support::{
    scripted::{Act, Got, Scripted, json},
    world::World,
};

/// What a downstream has by key, and for which keys it has no answer just now.
#[derive(Default)]
struct Desk {
    has: Mutex<HashMap<String, String>>,
    out_of_order: Mutex<HashSet<String>>,
}

impl Desk {
    fn answer(&self, got: &Got) -> Act {
        match got.path() {
            "/hook" => {
                let header = |name: &str| got.header(name).unwrap_or_default().trim_matches('"').to_owned();
                self.has.lock().unwrap().insert(header("idempotency-key"), header("settled-reference"));
                json(200, &json!({}))
            }
            "/account" => json(200, &json!({ "account": "demo" })),
            _asked => {
                let key = got.query("key").unwrap();
                if self.out_of_order.lock().unwrap().contains(&key) {
                    return json(500, &json!({}));
                }
                let has = self.has.lock().unwrap();
                let items: Vec<_> = has
                    .get(&key)
                    .map(|reference| json!({ "key": key, "ref": reference, "id": key }))
                    .into_iter()
                    .collect();
                json(200, &json!({ "items": items }))
            }
        }
    }
}

fn asked_by_key(base: &str) -> String {
    format!(
        r#"
name = "erp"
channel = "webhook"
allow_addresses = ["127.0.0.0/8"]
[limits]
lease_margin = "1s"
[timeouts]
connect = "2s"
tls = "2s"
body = "2s"
reply = "2s"
[webhook]
url = "{base}/hook"
[look_up]
kind = "http"
lag = "10s"
horizon = "72h"
need = 2
spacing = "5s"
absent_by_lag = "resend"
[look_up.http]
per = "key"
url = "{base}/events?key={{key}}"
answer = {{ items = "/items", key_at = "/key", reference_at = "/ref", id_at = "/id" }}
pages = {{ full_page = 50 }}
account = {{ url = "{base}/account", expect = {{ "/account" = "demo" }} }}
"#
    )
}

async fn key_of(world: &World, id: Uuid, kid: &str) -> String {
    let mut conn = world.db.pool.acquire().await.unwrap();
    let identity = store::intents::identity(&mut conn, id).await.unwrap().unwrap();
    let scope = world.text("select effect_scope from settled.intents where id = $1", id).await.unwrap();
    let sending = &world.sending;
    sending.keyring.derive(Some(kid), &sending.region, &identity, &scope, Spelling::default()).unwrap().text
}

#[tokio::test]
async fn an_answer_about_one_key_alone_is_no_answer_about_a_lost_attempt() {
    for silent in ["k1", "k2"] {
        let desk = Arc::new(Desk::default());
        let asked = Arc::clone(&desk);
        let downstream = Scripted::new(move |got| asked.answer(got)).await;
        let mut world = World::new(&[asked_by_key(&downstream.base)]).await;
        let elder = world.enqueue("erp", "INV-1", PAYLOAD).await;
        world.dispatch().await;
        assert_eq!(world.state(elder).await, "sent");
        world.turn(120);
        let id = world.enqueue("erp", "INV-2", PAYLOAD).await;
        world.beat().await;
        let copy = world.db.copy_aside().await;
        world.beat().await;
        world.db.put_back(&copy).await;
        world.beat().await;
        let mut quarantine = world.quarantine();
        while settled::engine::runner::Step::step(&mut quarantine).await.unwrap()
            != settled::engine::runner::Progress::Idle
        {}
        assert_eq!(world.state(id).await, "unknown");
        world.turn(60);
        let key = key_of(&world, id, silent).await;
        desk.out_of_order.lock().unwrap().insert(key.clone());
        world.ask().await;
        desk.out_of_order.lock().unwrap().clear();
        world.turn(20);
        world.ask().await;
        let verdicts = world.verdicts(id).await;
        assert!(
            verdicts.len() == 2 && verdicts.iter().all(|v| v.starts_with("inconclusive")),
            "{silent}: {verdicts:?}"
        );
        world.turn(20);
        world.ask().await;
        let verdicts = world.verdicts(id).await;
        assert!(verdicts.last().unwrap().starts_with("absent"), "{silent}: {verdicts:?}");
    }
}
