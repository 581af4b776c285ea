//! The API: who is let in, how problems look, health.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use serde_json::json;
use settled::{
    api::problem::{Kind as ProblemKind, Problem},
    clock::TestClock,
    lifecycle::Shutdown,
    store::tokens::Kind,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::http_support::{Api, request};

#[tokio::test]
async fn a_call_without_a_valid_token_is_401_and_says_how() {
    let api = Api::new().await;
    let revoked = api.token(Kind::Admin, None).await;
    sqlx::query("update settled.tokens set revoked_at = now()").execute(&api.db.pool).await.unwrap();
    for token in ["", "nonsense", "stl_admin_0123456789ab_00", &revoked] {
        let answer = api.get("/v1/intents", token).await;
        answer.problem(401, "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"settled\""));
    }
    let mut two = request("GET", "/v1/intents", &revoked, None);
    two.headers_mut().append("authorization", "Bearer x".parse().unwrap());
    api.send(two).await.problem(401, "unauthenticated");
}

#[tokio::test]
async fn every_kind_may_do_its_own_and_nothing_else() {
    let api = Api::new().await;
    let (producer, responder) = (api.token(Kind::Producer, Some("acme")).await, api.token(Kind::Responder, None).await);
    let (admin, metrics) = (api.token(Kind::Admin, None).await, api.token(Kind::Metrics, None).await);
    let pause = json!({ "scope": "all", "reason": "drill" }).to_string();
    let id = uuid::Uuid::now_v7();
    let story = format!("/v1/intents/{id}/story");
    // method, path, body, status for producer, responder, admin, metrics
    let table = [
        ("GET", "/v1/intents", None, [200, 200, 200, 403]),
        ("GET", story.as_str(), None, [403, 404, 404, 403]),
        ("GET", "/v1/pauses", None, [403, 200, 200, 403]),
        ("POST", "/v1/pauses", Some(pause.as_str()), [403, 201, 200, 403]),
        ("DELETE", "/v1/pauses", Some(r#"{"scope":"all"}"#), [403, 200, 404, 403]),
        ("GET", "/metrics", None, [403, 403, 200, 200]),
    ];
    for (method, path, body, expected) in table {
        for (token, status) in [&producer, &responder, &admin, &metrics].into_iter().zip(expected) {
            let answer = api.call(method, path, token, body).await;
            assert_eq!(answer.status.as_u16(), status, "{method} {path} {}: {}", &token[..10], answer.text);
            if status == 403 {
                answer.problem(403, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn a_pause_is_durable_told_in_the_journal_and_bound_to_the_tenant_of_the_person() {
    let api = Api::new().await;
    let person = api.token(Kind::Responder, Some("acme")).await;
    let answer =
        api.post("/v1/pauses", &person, &json!({ "scope": "tenant", "name": "acme", "reason": " audit " })).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json()["pauses"][0]["reason"], "audit");
    assert_eq!(answer.json()["pauses"][0]["paused_by"], "responder:ada");
    for other in [json!({ "scope": "all", "reason": "x" }), json!({ "scope": "tenant", "name": "beta", "reason": "x" })]
    {
        api.post("/v1/pauses", &person, &other).await.problem(403, "forbidden");
    }
    let wrong = api.post("/v1/pauses", &person, &json!({ "scope": "tenant", "name": "acme", "reason": " " })).await;
    assert_eq!(wrong.problem(400, "invalid")["field"], "reason");
    let said = r#"{"scope":"tenant","name":"acme","reason":"nobody would read it"}"#;
    api.call("DELETE", "/v1/pauses", &person, Some(said)).await.problem(400, "malformed");
    let body = r#"{"scope":"tenant","name":"acme"}"#;
    assert_eq!(api.call("DELETE", "/v1/pauses", &person, Some(body)).await.status, 200);
    let acts: Vec<String> =
        sqlx::query_scalar("select data ->> 'act' from settled.journal where kind = 'administration' order by id")
            .fetch_all(&api.db.pool)
            .await
            .unwrap();
    assert_eq!(acts, ["pause", "resume"]);
}

#[tokio::test]
async fn paths_methods_and_bodies_that_do_not_fit_are_problems_of_their_own() {
    let api = Api::new().await;
    let admin = api.token(Kind::Admin, None).await;
    api.get("/v2/intents", &admin).await.problem(404, "not_found");
    api.call("PATCH", "/v1/intents", &admin, None).await.problem(405, "method_not_allowed");
    let post = |content_type: &str, body: Body| {
        let builder =
            Request::builder().method("POST").uri("/v1/pauses").header("authorization", format!("Bearer {admin}"));
        builder.header("content-type", content_type).body(body).unwrap()
    };
    api.send(post("text/plain", Body::from("{}"))).await.problem(415, "unsupported_media_type");
    api.send(post("application/json", Body::from("{"))).await.problem(400, "malformed");
    let twice = r#"{"scope":"all","scope":"all","reason":"x"}"#;
    api.send(post("application/json; charset=utf-8", Body::from(twice))).await.problem(400, "malformed");
    let large = format!("{{\"scope\":\"all\",\"reason\":\"{}\"}}", "x".repeat(400 * 1024));
    api.send(post("application/json", Body::from(large))).await.problem(413, "too_large");
    api.get("/v1/intents?limit=0", &admin).await.problem(400, "invalid");
    api.get("/v1/intents?state=done", &admin).await.problem(400, "invalid");
    api.get("/v1/intents?colour=red", &admin).await.problem(400, "invalid");
    api.get("/v1/intents/INV-1", &admin).await.problem(400, "invalid");
}

#[tokio::test]
async fn the_request_id_is_the_callers_word_or_one_of_ours() {
    let api = Api::new().await;
    let mut own = request("GET", "/v1/intents", "", None);
    own.headers_mut().insert("x-request-id", "order-77".parse().unwrap());
    let answer = api.send(own).await;
    assert_eq!(answer.header("x-request-id"), Some("order-77"));
    assert_eq!(answer.problem(401, "unauthenticated")["request_id"], "order-77");
    let mut strange = request("GET", "/livez", "", None);
    strange.headers_mut().insert("x-request-id", "a b".parse().unwrap());
    let answer = api.send(strange).await;
    assert!(answer.header("x-request-id").unwrap().parse::<uuid::Uuid>().is_ok());
}

#[tokio::test]
async fn livez_tells_of_stuck_loops_and_never_asks_the_database() {
    let clock = Arc::new(TestClock::at(chrono::Utc::now()));
    let api = Api::with_clock(clock.clone()).await;
    for name in ["dispatcher", "reaper"] {
        api.state.progress.watch(name, Duration::from_secs(60));
    }
    clock.advance(Duration::from_secs(61));
    api.state.progress.tick("dispatcher");
    api.db.pool.close().await;
    let answer = api.get("/livez", "").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["loops"][0]["stuck"], false);
    assert_eq!(answer.json()["loops"][1]["stuck"], true);
    api.state.progress.tick("reaper");
    assert_eq!(api.get("/livez", "").await.status, 200);
    assert_eq!(api.get("/readyz", "").await.status, 503, "without a ledger it is alive, but not ready");
}

#[tokio::test]
async fn readyz_queries_the_ledger_and_says_how_long_a_repeat_is_recognised() {
    let api = Api::new().await;
    let answer = api.get("/readyz", "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["dedupe_window_hours"], 180 * 24);
    api.state.shutdown.begin();
    assert_eq!(api.get("/readyz", "").await.status, 503, "a stopping daemon takes no new calls");
}

#[tokio::test]
async fn a_ledger_that_is_away_is_503_with_a_time_to_come_back() {
    let api = Api::new().await;
    let admin = api.token(Kind::Admin, None).await;
    api.db.pool.close().await;
    let answer = api.get("/v1/intents", &admin).await;
    answer.problem(503, "unavailable");
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn metrics_are_open_metrics_text_with_the_dedupe_window() {
    let api = Api::new().await;
    let token = api.token(Kind::Metrics, None).await;
    api.get("/v1/pauses", &token).await.problem(403, "forbidden");
    let answer = api.get("/metrics", &token).await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(answer.text.contains("settled_dedupe_window_hours 4320"), "{}", answer.text);
    assert!(answer.text.contains("settled_http_answers_total{route=\"/v1/pauses\",status=\"403\"}"), "{}", answer.text);
    assert!(answer.text.contains("settled_escalations_open{reason=\"no_look_up\"} 0"), "{}", answer.text);
    assert!(answer.text.contains("settled_pauses{scope=\"all\"} 0"), "{}", answer.text);
    assert!(answer.text.ends_with("# EOF\n"));
}

/// As during a failover: the same call may be made again, so it must not look like a fault of the program.
#[tokio::test]
async fn a_server_that_only_reads_is_unavailable_not_an_internal_error() {
    let api = Api::new().await;
    let mut tx = api.db.pool.begin_with("begin read only").await.unwrap();
    let refused = sqlx::query("delete from settled.pauses").execute(&mut *tx).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "25006");
    assert_eq!(Problem::from(refused).kind(), ProblemKind::Unavailable);
}

/// Nobody has shown a token yet. Time is turned, not waited for.
#[tokio::test]
async fn a_connection_that_never_says_what_it_wants_is_closed() {
    let api = Api::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let server = tokio::spawn(settled::api::serve(listener, api.state.clone(), shutdown.clone()));
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET /livez HTTP/1.1\r\nx-long: ").await.unwrap();
    let mut whole = TcpStream::connect(address).await.unwrap();
    whole.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    whole.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    tokio::time::pause();
    for mut connection in [half, whole] {
        let ended = tokio::time::timeout(Duration::from_secs(300), connection.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "it is open still");
    }
    tokio::time::resume();
    shutdown.hurry();
    server.await.unwrap().unwrap();
}
