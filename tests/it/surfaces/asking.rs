//! `POST /v1/intents`: every verdict and every refusal with its status, and the same ledger behind SQL and HTTP.

use std::collections::BTreeSet;

use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use settled::store::tokens::Kind;
use sqlx::Row;
use uuid::Uuid;

use super::http_support::{Answer, Api};

pub(super) fn call(reference: &str, run_id: &str, step: i64) -> Value {
    json!({ "destination": "hooks", "reference": reference, "payload": { "amount": 1 }, "run_id": run_id, "step": step })
}

pub(super) fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

pub(super) struct World {
    pub(super) api: Api,
    pub(super) token: String,
}

impl World {
    pub(super) async fn new() -> Self {
        let api = Api::new().await;
        api.destination("hooks", &["acme"]).await;
        let token = api.token(Kind::Producer, Some("acme")).await;
        Self { api, token }
    }

    pub(super) async fn ask(&self, body: &Value) -> Answer {
        self.api.post("/v1/intents", &self.token, body).await
    }

    pub(super) async fn ask_with_key(&self, key: &str, body: &Value) -> Answer {
        let builder = Request::builder().method("POST").uri("/v1/intents");
        let builder = builder.header("authorization", format!("Bearer {}", self.token));
        let builder = builder.header("content-type", "application/json").header("idempotency-key", key);
        self.api.send(builder.body(body.to_string().into()).unwrap()).await
    }

    /// As any SQL client would, in its own transaction.
    pub(super) async fn ask_by_sql(
        &self,
        destination: &str,
        reference: &str,
        payload: &str,
        run: &str,
        step: i64,
    ) -> Result<(String, Uuid), String> {
        let row = sqlx::query(
            "select verdict, intent_id from settled.enqueue($1, $2, $3::text::json, $4, $5, '{\"tenant\":\"acme\"}')",
        )
        .bind(destination)
        .bind(reference)
        .bind(payload)
        .bind(run)
        .bind(step)
        .fetch_one(&self.api.db.pool)
        .await;
        match row {
            Ok(row) => Ok((row.get(0), row.get(1))),
            Err(error) => Err(error.as_database_error().unwrap().code().unwrap().into_owned()),
        }
    }

    pub(super) async fn count(&self, table: &str) -> i64 {
        let sql = format!("select count(*) from settled.{table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&self.api.db.pool).await.unwrap()
    }
}

#[tokio::test]
async fn accepted_replayed_and_already_requested_have_their_statuses() {
    let world = World::new().await;
    let first = world.ask(&call("INV-1", "run-1", 1)).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let id = first.json()["intent_id"].as_str().unwrap().to_owned();
    assert_eq!(first.json()["state"], "pending");
    assert_eq!(first.header("location"), Some(format!("/v1/intents/{id}").as_str()));
    assert_eq!(first.header("idempotent-replayed"), None);

    let again = world.ask(&call("INV-1", "run-1", 1)).await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!((&again.json()["verdict"], &again.json()["intent_id"]), (&json!("replayed"), &json!(id)));

    sqlx::query("update settled.intents set state = 'in_flight', attempt = 1, key = repeat('a', 32), kid = 'k1'")
        .execute(&world.api.db.pool)
        .await
        .unwrap();
    sqlx::query(
        "update settled.intents set state = 'sent', sent_at = now(), settled_at = now(), provider_id = 'msg-7'",
    )
    .execute(&world.api.db.pool)
    .await
    .unwrap();
    let elsewhere = world.ask(&call("inv-1", "run-2", 5)).await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.header("idempotent-replayed")), (200, None));
    let body = elsewhere.json();
    assert_eq!((&body["verdict"], &body["intent_id"]), (&json!("already_requested"), &json!(id)));
    assert_eq!((&body["state"], &body["provider_id"]), (&json!("sent"), &json!("msg-7")));
}

#[tokio::test]
async fn the_dispatcher_is_woken_by_what_is_accepted() {
    let world = World::new().await;
    let wake = world.api.state.wake.clone();
    let woken = wake.notified();
    tokio::pin!(woken);
    woken.as_mut().enable();
    assert_eq!(world.ask(&call("INV-1", "run-1", 1)).await.status, 201);
    tokio::time::timeout(std::time::Duration::from_secs(5), woken).await.expect("woken after the commit");
}

#[tokio::test]
async fn other_content_is_a_conflict_with_pointers_and_the_earlier_intent() {
    let world = World::new().await;
    let id = world.ask(&call("INV-1", "run-1", 1)).await.json()["intent_id"].clone();
    for body in [
        with(call("INV-1", "run-1", 1), "payload", json!({ "amount": 2 })),
        with(call("INV-1", "run-2", 1), "payload", json!({ "amount": 2 })),
    ] {
        let problem = world.ask(&body).await.problem(409, "conflict");
        assert_eq!((&problem["pointers"], &problem["intent_id"]), (&json!(["/payload/amount"]), &id));
    }
    assert_eq!(world.count("intents").await, 1);
    let told: i64 = sqlx::query_scalar("select count(*) from settled.journal where kind = 'conflict'")
        .fetch_one(&world.api.db.pool)
        .await
        .unwrap();
    assert_eq!(told, 2, "every refused conflict is written down in a transaction of its own");
}

#[tokio::test]
async fn a_callers_key_is_the_identity_and_other_content_under_it_is_422() {
    let world = World::new().await;
    let mut body = call("INV-1", "x", 1);
    body.as_object_mut().unwrap().retain(|name, _| !["run_id", "step"].contains(&name.as_str()));
    world.ask(&body).await.problem(400, "identity_required");
    let first = world.ask_with_key("order-1", &body).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-key")), (201, Some("order-1")));
    let quoted = world.ask_with_key("\"order-1\"", &body).await;
    assert_eq!((quoted.status.as_u16(), quoted.header("idempotent-replayed")), (200, Some("true")));
    let other = with(body.clone(), "payload", json!({ "amount": 9 }));
    let problem = world.ask_with_key("order-1", &other).await.problem(422, "key_reused");
    assert_eq!(problem["pointers"], json!(["/payload/amount"]));
    for key in ["", "a b", &"x".repeat(256)] {
        assert_eq!(world.ask_with_key(key, &body).await.problem(400, "invalid")["field"], "Idempotency-Key");
    }
    let stored: String =
        sqlx::query_scalar("select run_id from settled.requests").fetch_one(&world.api.db.pool).await.unwrap();
    assert!(stored.starts_with("key:") && !stored.contains("order-1"), "only a hash of the key is kept");
}

#[tokio::test]
async fn what_ended_without_effect_is_409_and_a_passed_deadline_410() {
    let world = World::new().await;
    let id = world.ask(&call("INV-1", "run-1", 1)).await.json()["intent_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/intents/{id}/cancel");
    let cancelled = world.api.post(&path, &world.token, &json!({ "reason": "not needed" })).await;
    assert_eq!((cancelled.status.as_u16(), &cancelled.json()["state"]), (200, &json!("cancelled")));
    let problem = world.ask(&call("INV-1", "run-1", 1)).await.problem(409, "ended_without_effect");
    assert_eq!((&problem["intent_id"], &problem["state"]), (&json!(id), &json!("cancelled")));
    let expired = with(call("INV-2", "run-1", 2), "deadline", json!("2020-01-01T00:00:00Z"));
    world.ask(&expired).await.problem(410, "expired");
    assert_eq!(world.ask(&call("INV-1", "run-9", 1)).await.status, 201, "the freed effect may be asked for anew");
}

#[tokio::test]
async fn a_rival_that_holds_its_transaction_open_is_503_with_retry_after() {
    let world = World::new().await;
    let mut rival = world.api.db.pool.begin().await.unwrap();
    sqlx::query("select settled.enqueue('hooks', 'INV-1', '{\"amount\": 1}', 'run-0', 1, '{\"tenant\":\"acme\"}')")
        .execute(&mut *rival)
        .await
        .unwrap();
    let answer = world.ask(&call("INV-1", "run-1", 1)).await;
    answer.problem(503, "rival_open");
    assert!(answer.header("retry-after").is_some());
    rival.rollback().await.unwrap();
    assert_eq!(world.ask(&call("INV-1", "run-1", 1)).await.status, 201);
}

#[tokio::test]
async fn envelopes_that_do_not_fit_name_the_field() {
    let world = World::new().await;
    let good = call("INV-1", "run-1", 1);
    let table = [
        (with(good.clone(), "refrence", json!(1)), 400, "malformed", "/refrence"),
        (with(good.clone(), "step", json!("1")), 400, "malformed", "/step"),
        (with(good.clone(), "due_at", json!("tomorrow")), 400, "malformed", "/due_at"),
        (with(good.clone(), "reference", json!("INV 1")), 400, "invalid", "/reference"),
        (with(good.clone(), "occurrence", json!(0)), 400, "invalid", "/occurrence"),
        (with(good.clone(), "run_id", json!("key:x")), 400, "invalid", "/run_id"),
        (with(good.clone(), "instructed_by", json!({ "who": 1 })), 400, "invalid", "/instructed_by"),
        (with(good.clone(), "payload", json!({ "a\u{0}": 1 })), 400, "invalid", "/payload"),
    ];
    for (body, status, name, field) in table {
        let problem = world.ask(&body).await.problem(status, name);
        assert_eq!(problem["field"], field, "{problem}");
    }
    world.ask(&with(good.clone(), "destination", json!("nowhere"))).await.problem(404, "not_found");
    world.api.destination("others", &["beta"]).await;
    world.ask(&with(good, "destination", json!("others"))).await.problem(403, "forbidden");
    assert_eq!(world.count("requests").await, 0);
}

#[tokio::test]
async fn a_member_that_is_there_twice_is_refused_anywhere_in_the_envelope() {
    let world = World::new().await;
    let rest = r#""reference":"INV-1","run_id":"r","step":1"#;
    for (text, name) in [
        (format!(r#"{{"destination":"hooks","destination":"hooks","payload":{{}},{rest}}}"#), "malformed"),
        (format!(r#"{{"destination":"hooks","payload":{{}},"payload":{{}},{rest}}}"#), "malformed"),
        (
            format!(r#"{{"destination":"hooks","payload":{{}},"instructed_by":{{"a":"1","\u0061":"2"}},{rest}}}"#),
            "malformed",
        ),
        (format!(r#"{{"destination":"hooks","payload":{{"x":[{{"a":1,"a":1}}]}},{rest}}}"#), "invalid"),
    ] {
        world.api.call("POST", "/v1/intents", &world.token, Some(&text)).await.problem(400, name);
    }
}

#[tokio::test]
async fn only_producers_ask_and_only_for_their_own_tenant() {
    let world = World::new().await;
    for kind in [Kind::Responder, Kind::Admin, Kind::Metrics] {
        let token = world.api.token(kind, None).await;
        world.api.post("/v1/intents", &token, &call("INV-1", "run-1", 1)).await.problem(403, "forbidden");
    }
    world.ask(&with(call("INV-1", "run-1", 1), "tenant", json!("beta"))).await.problem(400, "malformed");
    let first = world.ask(&call("INV-1", "run-1", 1)).await.json();
    let id = first["intent_id"].as_str().unwrap();
    let beta = world.api.token(Kind::Producer, Some("beta")).await;
    world.api.get(&format!("/v1/intents/{id}"), &beta).await.problem(404, "not_found");
    let cancel = format!("/v1/intents/{id}/cancel");
    world.api.post(&cancel, &beta, &json!({ "reason": "x" })).await.problem(404, "not_found");
    assert_eq!(world.api.get("/v1/intents", &beta).await.json()["intents"], json!([]));
    world.api.get("/v1/intents?tenant=acme", &beta).await.problem(403, "forbidden");
    let (principal, surface): (String, String) =
        sqlx::query_as("select principal, surface from settled.requests").fetch_one(&world.api.db.pool).await.unwrap();
    assert_eq!((principal.as_str(), surface.as_str()), ("ada", "http"));
}

#[derive(Deserialize)]
struct Pairs {
    pairs: Vec<Pair>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    a: String,
    b: String,
    same: bool,
    #[serde(default)]
    channel: Option<String>,
    #[serde(default)]
    rules: Value,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    payload: String,
    field: String,
    rule: String,
    #[serde(default)]
    rules: Value,
}

fn pairs() -> Pairs {
    serde_json::from_str(include_str!("../../data/payload_pairs.json")).unwrap()
}

/// The payload as text inside the envelope, not parsed and written anew.
fn envelope(destination: &str, reference: &str, payload: &str, run: &str) -> String {
    format!(
        r#"{{"destination":"{destination}","reference":"{reference}","payload":{payload},"run_id":"{run}","step":1}}"#
    )
}

#[tokio::test]
async fn payload_pairs_get_the_same_verdict_by_http_and_mixed_with_sql_both_ways() {
    let world = World::new().await;
    for (n, pair) in pairs().pairs.into_iter().enumerate() {
        let destination = format!("d{n}");
        let channel = pair.channel.as_deref().unwrap_or("webhook");
        world.api.destination_with(&destination, channel, &pair.rules, &["acme"]).await;
        for (way, http_first) in [("http", true), ("sql", false)] {
            let (first, second) = (format!("{way}-{n}"), format!("{way}-{n}-elsewhere"));
            let by_http = |payload: &str, run: &str| envelope(&destination, way, payload, run);
            let told = if http_first {
                let answer = world.api.call("POST", "/v1/intents", &world.token, Some(&by_http(&pair.a, &first))).await;
                assert_eq!(answer.status, 201, "{}: {}", pair.name, answer.text);
                let again = world.ask_by_sql(&destination, way, &pair.b, &first, 1).await;
                let elsewhere = world.ask_by_sql(&destination, way, &pair.b, &second, 1).await;
                [again, elsewhere].map(|r| r.map_or_else(|code| code, |(verdict, _)| verdict))
            } else {
                world.ask_by_sql(&destination, way, &pair.a, &first, 1).await.unwrap();
                let again = world.api.call("POST", "/v1/intents", &world.token, Some(&by_http(&pair.b, &first))).await;
                let elsewhere =
                    world.api.call("POST", "/v1/intents", &world.token, Some(&by_http(&pair.b, &second))).await;
                [again, elsewhere].map(|answer| match answer.status.as_u16() {
                    200 => answer.json()["verdict"].as_str().unwrap().to_owned(),
                    409 => "ST409".to_owned(),
                    other => panic!("{}: {other} {}", pair.name, answer.text),
                })
            };
            let expected = if pair.same { ["replayed", "already_requested"] } else { ["ST409", "ST409"] };
            assert_eq!(told, expected, "{} ({way} first)", pair.name);
        }
    }
}

#[tokio::test]
async fn payloads_that_cannot_be_compared_are_400_with_their_field() {
    let world = World::new().await;
    for (n, refused) in pairs().refused.into_iter().enumerate() {
        let destination = format!("d{n}");
        world.api.destination_with(&destination, "webhook", &refused.rules, &["acme"]).await;
        let body = envelope(&destination, "INV-1", &refused.payload, "run-1");
        let answer = world.api.call("POST", "/v1/intents", &world.token, Some(&body)).await;
        assert_eq!(answer.status, 400, "{}: {}", refused.name, answer.text);
        let problem = answer.json();
        // What is no JSON at all never reaches the ledger.
        if problem["type"] == "urn:settled:problem:invalid" {
            assert_eq!(
                (&problem["field"], &problem["rule"]),
                (&json!(refused.field), &json!(refused.rule)),
                "{}",
                refused.name
            );
        }
    }
    assert_eq!(world.count("intents").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_identical_enqueues_by_sql_and_http_make_one_row_and_get_one_id() {
    let world = std::sync::Arc::new(World::new().await);
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move {
                if n % 2 == 0 {
                    let answer = world.ask(&call("INV-1", "run-1", 1)).await;
                    assert!(answer.status.is_success(), "{}", answer.text);
                    answer.json()["intent_id"].as_str().unwrap().to_owned()
                } else {
                    world.ask_by_sql("hooks", "INV-1", "{\"amount\":1.0}", "run-1", 1).await.unwrap().1.to_string()
                }
            })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for one in calls {
        ids.insert(one.await.unwrap());
    }
    assert_eq!(ids.len(), 1);
    for table in ["intents", "requests", "queue", "payloads"] {
        assert_eq!(world.count(table).await, 1, "{table}");
    }
}

#[tokio::test]
async fn an_agent_that_decides_again_is_counted_as_such() {
    let world = World::new().await;
    assert_eq!(world.ask(&call("INV-1", "run-1", 1)).await.status.as_u16(), 201);
    assert_eq!(world.ask(&call("INV-1", "run-1", 1)).await.status.as_u16(), 200, "a replay is no new decision");
    assert_eq!(world.ask(&call("INV-1", "run-2", 7)).await.status.as_u16(), 200);
    assert_eq!(
        world.ask(&with(call("INV-1", "run-3", 1), "payload", json!({ "amount": 2 }))).await.status.as_u16(),
        409
    );
    assert_eq!(world.ask(&call("INV-2", "run-1", 1)).await.status.as_u16(), 409);
    let token = world.api.token(Kind::Metrics, None).await;
    let text = world.api.get("/metrics", &token).await.text;
    for line in [
        "settled_failure_modes_total{mode=\"model_redecided\"} 2",
        "settled_failure_modes_total{mode=\"step_retargeted\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
