//! An intent that ends without effect tells every call that pointed to it.

use serde_json::{Value, json};
use settled::store::tokens::Kind;

use super::http_support::Api;

fn call(reference: &str, run: &str, amount: u32) -> Value {
    json!({ "destination": "hooks", "reference": reference, "payload": { "amount": amount }, "run_id": run, "step": 1 })
}

async fn asked(api: &Api, token: &str, call: &Value) -> String {
    let answer = api.post("/v1/intents", token, call).await;
    assert!(answer.status.is_success(), "{}", answer.text);
    answer.json()["intent_id"].as_str().unwrap().to_owned()
}

fn runs(page: &Value) -> Vec<&str> {
    page["requests"].as_array().unwrap().iter().map(|r| r["run_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_call_of_an_intent_that_ended_without_effect_is_listed_as_unserved() {
    let api = Api::new().await;
    api.destination("hooks", &["acme", "beta"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let id = asked(&api, &token, &call("INV-1", "run-1", 1)).await;
    for run in ["run-2", "run-3"] {
        assert_eq!(asked(&api, &token, &call("INV-1", run, 1)).await, id, "already requested");
    }
    asked(&api, &token, &call("INV-2", "run-4", 1)).await;
    let none = api.get("/v1/requests?unserved=true", &token).await.json();
    assert_eq!(none, json!({ "requests": [], "next": null }), "what is still wanted is not unserved");

    let cancelled = api.post(&format!("/v1/intents/{id}/cancel"), &token, &json!({ "reason": "wrong customer" })).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    let page = api.get("/v1/requests?unserved=true", &token).await.json();
    assert_eq!(runs(&page), ["run-3", "run-2", "run-1"]);
    let one = &page["requests"][2];
    assert_eq!((&one["intent_id"], &one["state"]), (&json!(id), &json!("cancelled")));
    assert_eq!((&one["verdict"], &one["detail"]), (&json!("accepted"), &json!("cancelled by its producer")));
    for secret in ["payload", "recipient", "fingerprint", "key"] {
        assert_eq!(one[secret], Value::Null, "{secret}");
    }

    // A page at a time, and only one's own tenant.
    let first = api.get("/v1/requests?unserved=true&limit=2", &token).await.json();
    let rest = api
        .get(&format!("/v1/requests?unserved=true&limit=2&before={}", first["next"].as_str().unwrap()), &token)
        .await;
    assert_eq!((runs(&first), runs(&rest.json())), (vec!["run-3", "run-2"], vec!["run-1"]));
    let other = api.token(Kind::Producer, Some("beta")).await;
    assert_eq!(api.get("/v1/requests?unserved=true", &other).await.json()["requests"], json!([]));
    api.get("/v1/requests?unserved=true&tenant=acme", &other).await.problem(403, "forbidden");
    api.get("/v1/requests?unserved=false", &token).await.problem(400, "invalid");
    api.get("/v1/requests", &token).await.problem(400, "invalid");
    let metrics = api.token(Kind::Metrics, None).await;
    api.get("/v1/requests?unserved=true", &metrics).await.problem(403, "forbidden");
}

#[tokio::test]
async fn a_call_that_was_corrected_is_served_by_its_correction() {
    let api = Api::new().await;
    api.destination("hooks", &["acme"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let id = asked(&api, &token, &call("INV-1", "run-1", 1)).await;
    api.post(&format!("/v1/intents/{id}/cancel"), &token, &json!({ "reason": "wrong amount" })).await;
    assert_eq!(runs(&api.get("/v1/requests?unserved=true", &token).await.json()), ["run-1"]);
    let corrected = asked(&api, &token, &call("INV-1", "run-1", 2)).await;
    assert_ne!(corrected, id);
    assert!(runs(&api.get("/v1/requests?unserved=true", &token).await.json()).is_empty());
}

#[tokio::test]
async fn whoever_cancels_is_recorded_under_their_own_name() {
    let api = Api::with_fleet().await;
    api.destination("hooks", &["acme"]).await;
    let producer = api.token(Kind::Producer, Some("acme")).await;
    let person = api.token(Kind::Responder, None).await;
    let id = asked(&api, &producer, &call("INV-1", "run-1", 1)).await;
    let path = format!("/v1/intents/{id}/cancel");
    let lacking = api.post(&path, &person, &json!({ "reason": "wrong customer" })).await;
    assert_eq!(lacking.problem(422, "incomplete")["field"], "version");
    let version = api.get(&format!("/v1/intents/{id}"), &person).await.json()["version"].clone();
    let done = api.post(&path, &person, &json!({ "reason": "wrong customer", "version": version })).await;
    assert_eq!((done.status.as_u16(), &done.json()["state"]), (200, &json!("cancelled")), "{}", done.text);

    let own = asked(&api, &producer, &call("INV-2", "run-2", 1)).await;
    api.post(&format!("/v1/intents/{own}/cancel"), &producer, &json!({ "reason": "no longer" })).await;
    for (id, actor) in [(id, "responder:ada"), (own, "producer:ada")] {
        let told: Vec<String> = sqlx::query_scalar(
            "select distinct actor from settled.journal where intent_id = $1::uuid
                and (kind = 'act' or (kind = 'move' and data ->> 'to' = 'cancelled'))",
        )
        .bind(id)
        .fetch_all(&api.db.pool)
        .await
        .unwrap();
        assert_eq!(told, [actor]);
    }
    let metrics = api.token(Kind::Metrics, None).await;
    let text = api.get("/metrics", &metrics).await.text;
    for line in [
        "settled_moves_total{to=\"pending\",by=\"producer\"} 2",
        "settled_moves_total{to=\"cancelled\",by=\"person\"} 1",
        "settled_moves_total{to=\"cancelled\",by=\"producer\"} 1",
        "settled_acts_total{verb=\"cancel\",outcome=\"applied\"} 2",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
