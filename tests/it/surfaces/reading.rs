//! `GET /v1/intents`: states that are no errors, bounded waits, pages, the story for people.

use std::time::Duration;

use serde_json::json;
use settled::store::tokens::Kind;

use super::http_support::Api;

async fn accepted(api: &Api, token: &str, n: i64) -> String {
    let body =
        json!({ "destination": "hooks", "reference": format!("INV-{n}"), "payload": {}, "run_id": "r", "step": n });
    let answer = api.post("/v1/intents", token, &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["intent_id"].as_str().unwrap().to_owned()
}

async fn run(api: &Api, sql: &'static str) {
    sqlx::query(sql).execute(&api.db.pool).await.unwrap();
}

#[tokio::test]
async fn in_flight_and_unknown_are_200_with_the_state_and_the_time_to_come_back() {
    let api = Api::new().await;
    api.destination("hooks", &["acme"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let path = format!("/v1/intents/{}", accepted(&api, &token, 1).await);
    run(&api, "update settled.intents set state = 'in_flight', attempt = 1, key = repeat('a', 32), kid = 'k1'").await;
    run(
        &api,
        "update settled.queue set leased_until = clock_timestamp() + interval '100 seconds', token = gen_random_uuid()",
    )
    .await;
    let answer = api.get(&path, &token).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("in_flight")));
    assert_eq!(answer.header("retry-after"), Some("100"));

    run(&api, "update settled.intents set state = 'unknown'").await;
    run(&api, "update settled.queue set kind = 'ask', leased_until = null, token = null, due_at = clock_timestamp() + interval '30 seconds'").await;
    // A wait that cannot see the next question is not waited for.
    let answer =
        tokio::time::timeout(Duration::from_secs(10), api.get(&format!("{path}?wait=20"), &token)).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("unknown")));
    assert_eq!(answer.header("retry-after"), Some("30"));
    for secret in ["key", "recipient", "payload", "report"] {
        assert_eq!(answer.json()[secret], json!(null), "a producer never sees {secret}");
    }

    run(&api, "update settled.intents set state = 'sent', sent_at = now(), settled_at = now(), provider_id = 'msg-1'")
        .await;
    run(&api, "delete from settled.queue").await;
    let answer = api.get(&path, &token).await;
    assert_eq!((answer.json()["provider_id"].as_str(), answer.header("retry-after")), (Some("msg-1"), None));
}

#[tokio::test]
async fn a_wait_ends_when_the_intent_settles_and_when_the_daemon_stops() {
    let api = Api::new().await;
    api.destination("hooks", &["acme"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let path = format!("/v1/intents/{}?wait=30", accepted(&api, &token, 1).await);
    let settle = async {
        run(&api, "update settled.intents set state = 'cancelled', settled_at = now(), holds_effect = false").await;
    };
    let both = async { tokio::join!(api.get(&path, &token), settle) };
    let (answer, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.expect("woken long before 30 s");
    assert_eq!(answer.json()["state"], "cancelled");

    let path = format!("/v1/intents/{}?wait=30", accepted(&api, &token, 2).await);
    let stop = async { api.state.shutdown.begin() };
    let both = async { tokio::join!(api.get(&path, &token), stop) };
    let (answer, ()) = tokio::time::timeout(Duration::from_secs(10), both).await.expect("a stop ends waits");
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("pending")));
    api.get(&format!("{path}1"), &token).await.problem(400, "invalid");
}

#[tokio::test]
async fn lists_are_pages_by_key_newest_first_and_filter_by_reference_and_state() {
    let api = Api::new().await;
    api.destination("hooks", &["acme"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let mut ids = Vec::new();
    for n in 1..=5 {
        ids.push(accepted(&api, &token, n).await);
    }
    ids.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/intents?limit=2".to_owned();
    loop {
        let page = api.get(&path, &token).await.json();
        seen.extend(page["intents"].as_array().unwrap().iter().map(|i| i["intent_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/intents?limit=2&before={next}");
    }
    assert_eq!(seen, ids);
    let one = api.get("/v1/intents?reference=inv-3", &token).await.json();
    assert_eq!(one["intents"][0]["intent_id"], json!(ids[2]));
    assert_eq!(one["intents"].as_array().unwrap().len(), 1);
    assert_eq!(api.get("/v1/intents?state=sent", &token).await.json()["intents"], json!([]));
}

#[tokio::test]
async fn the_story_tells_requests_attempts_questions_and_people_in_order() {
    let api = Api::new().await;
    api.destination("hooks", &["acme"]).await;
    let token = api.token(Kind::Producer, Some("acme")).await;
    let id = accepted(&api, &token, 1).await;
    run(&api, "update settled.intents set state = 'in_flight', attempt = 1, key = repeat('a', 32), kid = 'k1'").await;
    run(
        &api,
        r#"insert into settled.attempts (intent_id, number, kind, token, worker, generation, claimed_at, lease_until, closed_at, outcome, closure_at, report)
           select id, 1, 'send', gen_random_uuid(), gen_random_uuid(), 'g1', clock_timestamp(), now() + interval '1 minute',
                  clock_timestamp(), 'ambiguous', now() + interval '1 minute',
                  '{"outcome": {"outcome": "ambiguous", "doubt": "no_reply"}, "report": {"stage": "handed", "bytes_handed": 412, "bytes_needed": 412, "millis": 30000}}'
             from settled.intents"#,
    )
    .await;
    run(&api, r#"insert into settled.journal (intent_id, kind, attempt, actor, data)
                 select id, 'look_up', 1, 'reconciler', '{"verdict": {"verdict": "inconclusive", "why": "no witness"}}' from settled.intents"#).await;
    run(
        &api,
        "insert into settled.escalations (id, subject, intent_id, reason, cause, summary)
               select gen_random_uuid(), 'intent', id, 'inconclusive', 'x', 'asked 20 times' from settled.intents",
    )
    .await;
    let person = api.token(Kind::Responder, None).await;
    let story = api.get(&format!("/v1/intents/{id}/story"), &person).await.json();
    assert_eq!(story["with_a_person"], true);
    let events: Vec<&str> = story["events"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    let order = ["request", "attempt_began", "attempt_ended", "escalation_opened"];
    let mut at = 0;
    for event in &events {
        if order.get(at) == Some(event) {
            at += 1;
        }
    }
    assert_eq!(at, order.len(), "{events:?}");

    let shown = std::process::Command::new(env!("CARGO_BIN_EXE_settled"))
        .args(["show", "INV-1", "--database-url", &api.db.url])
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    for words in [
        "INV-1  IN_FLIGHT  with a person",
        "INV-1 by ada over http: accepted",
        "AMBIGUOUS, doubt no_reply",
        "stage handed, 412 of 412 bytes",
        "inconclusive (attempt 1), asked by reconciler",
        "inconclusive: asked 20 times",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[tokio::test]
async fn a_value_that_the_ledger_cannot_keep_is_the_callers_mistake() {
    let api = Api::new().await;
    api.destination("hooks", &["acme"]).await;
    let person = api.token(Kind::Responder, None).await;
    let producer = api.token(Kind::Producer, Some("acme")).await;
    for path in [
        "/v1/intents?reference=%00",
        "/v1/intents?destination=a%00",
        "/v1/intents?tenant=%00",
        "/v1/escalations?cause=%00",
        "/v1/escalations?destination=%00",
        "/v1/escalations?tenant=%00",
    ] {
        api.get(path, &person).await.problem(400, "invalid");
    }
    let id = accepted(&api, &producer, 1).await;
    let body = json!({ "reason": "a\u{0}b" });
    api.post(&format!("/v1/intents/{id}/cancel"), &producer, &body).await.problem(400, "invalid");
}

#[tokio::test]
async fn a_pause_says_why_in_plain_words_and_names_what_can_exist() {
    let api = Api::new().await;
    let person = api.token(Kind::Responder, None).await;
    for (name, reason, field) in [
        ("acme", "x\u{1b}]0;owned\u{7}", "reason"),
        ("acme", "x\u{0}", "reason"),
        ("acme", &"x".repeat(2_001), "reason"),
        ("a\u{1b}[31m", "maintenance", "name"),
        ("a\u{0}", "maintenance", "name"),
        (&"x".repeat(64), "maintenance", "name"),
    ] {
        let body = json!({ "scope": "tenant", "name": name, "reason": reason });
        let problem = api.post("/v1/pauses", &person, &body).await.problem(400, "invalid");
        assert_eq!(problem["field"], field, "{problem}");
    }
    assert_eq!(api.get("/v1/pauses", &person).await.json()["pauses"], json!([]));
}

#[tokio::test]
async fn a_person_of_one_tenant_is_not_told_of_the_pauses_of_others() {
    let api = Api::new().await;
    api.destination("hooks", &[]).await;
    let (everybody, own) = (api.token(Kind::Responder, None).await, api.token(Kind::Responder, Some("acme")).await);
    for (scope, name) in [("all", ""), ("destination", "hooks"), ("tenant", "acme"), ("tenant", "rival")] {
        let body = json!({ "scope": scope, "name": name, "reason": "maintenance" });
        assert_eq!(api.post("/v1/pauses", &everybody, &body).await.status, 201);
    }
    let seen = api.get("/v1/pauses", &own).await;
    assert_eq!(seen.json()["pauses"].as_array().unwrap().len(), 3, "{}", seen.text);
    assert!(!seen.text.contains("rival"), "{}", seen.text);
}
