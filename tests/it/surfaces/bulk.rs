//! `POST /v1/intents/bulk`: each item answered as a call of its own, or nothing at all.

use http::Request;
use serde_json::{Value, json};
use settled::store::tokens::Kind;

use super::asking::{World, call, with};

impl World {
    async fn bulk(&self, mode: &str, items: &[Value]) -> super::http_support::Answer {
        self.api.post("/v1/intents/bulk", &self.token, &json!({ "mode": mode, "items": items })).await
    }
}

fn hundred() -> Vec<Value> {
    let mut items: Vec<Value> = (0..100).map(|n| call(&format!("INV-{n}"), "run", n)).collect();
    items[37]["payload"] = json!({ "body": "a\u{0}b" });
    items
}

#[tokio::test]
async fn case_115_of_a_hundred_items_the_bad_one_is_named_by_its_index() {
    let world = World::new().await;
    let answer = world.bulk("all_or_nothing", &hundred()).await;
    let problem = answer.problem(422, "batch_refused");
    let items = problem["items"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(
        (&items[0]["index"], &items[0]["status"], &items[0]["field"]),
        (&json!(37), &json!(400), &json!("/payload/body"))
    );
    assert_eq!(items[0]["type"], "urn:settled:problem:invalid");
    assert_eq!(world.count("intents").await, 0);

    let answer = world.bulk("per_item", &hundred()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    assert_eq!((&body["accepted"], &body["refused"]), (&json!(99), &json!(1)));
    for (at, item) in body["items"].as_array().unwrap().iter().enumerate() {
        assert_eq!(item["index"], at);
        if at == 37 {
            assert_eq!((&item["status"], &item["rule"], &item["verdict"]), (&json!(400), &json!("nul"), &Value::Null));
        } else {
            assert_eq!(
                (&item["status"], &item["verdict"], &item["state"]),
                (&json!(201), &json!("accepted"), &json!("pending"))
            );
        }
    }
    assert_eq!(world.count("intents").await, 99);
}

#[tokio::test]
async fn items_have_the_verdicts_and_statuses_of_single_calls() {
    let world = World::new().await;
    let first = world.ask(&call("INV-1", "run", 1)).await.json()["intent_id"].clone();
    let keyed = |key: &str, amount: i64| json!({ "destination": "hooks", "reference": "INV-9", "payload": { "amount": amount }, "idempotency_key": key });
    let items = [
        call("INV-1", "run", 1),
        call("INV-1", "other", 1),
        with(call("INV-1", "run", 1), "payload", json!({ "amount": 2 })),
        with(call("INV-2", "run", 2), "step", json!("2")),
        with(call("INV-2", "run", 2), "destination", json!("nowhere")),
        call("INV-2", "run", 2),
        keyed("k", 1),
        keyed("k", 2),
        with(call("INV-3", "run", 3), "due_at", json!("2026-12-01 09:00")),
    ];
    let wake = world.api.state.wake.clone();
    let woken = wake.notified();
    tokio::pin!(woken);
    woken.as_mut().enable();
    let body = world.bulk("per_item", &items).await.json();
    let told: Vec<(u64, &str)> = body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["status"].as_u64().unwrap(), item["verdict"].as_str().or(item["type"].as_str()).unwrap()))
        .collect();
    let expected = [
        (200, "replayed"),
        (200, "already_requested"),
        (409, "urn:settled:problem:conflict"),
        (400, "urn:settled:problem:malformed"),
        (404, "urn:settled:problem:not_found"),
        (201, "accepted"),
        (201, "accepted"),
        (422, "urn:settled:problem:key_reused"),
        (400, "urn:settled:problem:malformed"),
    ];
    assert_eq!(told, expected);
    assert_eq!((&body["items"][0]["intent_id"], &body["items"][2]["pointers"]), (&first, &json!(["/payload/amount"])));
    assert_eq!((&body["items"][3]["field"], &body["items"][8]["field"]), (&json!("/step"), &json!("/due_at")));
    tokio::time::timeout(std::time::Duration::from_secs(5), woken).await.expect("woken after the commit");
    let conflicts: i64 = sqlx::query_scalar("select count(*) from settled.escalations where reason = 'conflict'")
        .fetch_one(&world.api.db.pool)
        .await
        .unwrap();
    assert_eq!(conflicts, 2, "written down as that of a single call");
    let (principal, surface): (String, String) =
        sqlx::query_as("select distinct principal, surface from settled.requests")
            .fetch_one(&world.api.db.pool)
            .await
            .unwrap();
    assert_eq!((principal.as_str(), surface.as_str()), ("ada", "http"));
}

#[tokio::test]
async fn a_batch_that_cannot_be_asked_is_refused_as_a_whole() {
    let world = World::new().await;
    let item = call("INV-1", "run", 1);
    world.bulk("all_or_nothing", &[]).await.problem(400, "invalid");
    world.bulk("all_or_nothing", &vec![item.clone(); 1001]).await.problem(400, "invalid");
    world.bulk("sometimes", std::slice::from_ref(&item)).await.problem(400, "malformed");
    let large = with(item.clone(), "payload", json!({ "a": "x".repeat(9 << 20) }));
    world.bulk("per_item", &[large]).await.problem(413, "too_large");
    let wrong = world.bulk("all_or_nothing", &[item.clone(), with(item.clone(), "stepp", json!(1))]).await;
    let problem = wrong.problem(422, "batch_refused");
    assert_eq!(
        (&problem["items"][0]["index"], &problem["items"][0]["type"]),
        (&json!(1), &json!("urn:settled:problem:malformed"))
    );
    let responder = world.api.token(Kind::Responder, None).await;
    let body = json!({ "items": [item.clone()] });
    world.api.post("/v1/intents/bulk", &responder, &body).await.problem(403, "forbidden");
    assert_eq!(world.count("intents").await, 0);
    let answer = world.api.post("/v1/intents/bulk", &world.token, &body).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["accepted"]),
        (200, &json!(1)),
        "all or nothing where no mode is named"
    );
    let keyed = with(item, "idempotency_key", json!("k"));
    let problem = world.ask(&keyed).await.problem(400, "malformed");
    assert_eq!(problem["field"], "/idempotency_key", "alone it is the header");
}

#[tokio::test]
async fn an_item_nested_deeper_than_the_database_can_read_harms_no_other() {
    let world = World::new().await;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let items =
        [call("INV-1", "run", 1), with(call("INV-2", "run", 2), "payload", json!("deep")), call("INV-3", "run", 3)];
    for (mode, status) in [("all_or_nothing", 422), ("per_item", 200)] {
        let body = json!({ "mode": mode, "items": items }).to_string().replace("\"deep\"", &deep);
        let builder = Request::builder().method("POST").uri("/v1/intents/bulk");
        let builder = builder.header("authorization", format!("Bearer {}", world.token));
        let answer =
            world.api.send(builder.header("content-type", "application/json").body(body.into()).unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
        let told = answer.json()["items"].clone();
        let refused: Vec<&Value> = told.as_array().unwrap().iter().filter(|item| item["status"] == 400).collect();
        assert_eq!(refused.len(), 1, "{told}");
        assert_eq!((&refused[0]["index"], &refused[0]["field"]), (&json!(1), &json!("/payload")));
    }
    assert_eq!(world.count("intents").await, 2);
}
