//! The same over HTTP and from the command line: roles, versions, what the loser is told, and what a person reads.

use std::{process::Output, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use settled::{
    api::{self, AppState},
    clock::Clock,
    config::retention::Windows,
    engine::resolution::VERBS,
    lifecycle::Shutdown,
    store::tokens::{self, Kind, NewToken},
    telemetry::{metrics::Metrics, progress::Progress},
};
use tokio::{net::TcpListener, sync::Notify};
use tower::ServiceExt;
use uuid::Uuid;

use super::desk::{acts, escalation};
use crate::support::ledger::{Ledger, TENANT, lost, sent};
use crate::surfaces::openapi::conforms;

fn state(ledger: &Ledger) -> AppState {
    let day = Duration::from_secs(86_400);
    let windows = Windows { keys: day * 180, retries: day, look_back: day, callers: day };
    let clock: Arc<dyn Clock> = Arc::clone(&ledger.clock) as Arc<_>;
    AppState::new(
        ledger.pool().clone(),
        Arc::clone(&clock),
        Metrics::new(),
        Progress::new(clock),
        Arc::new(Notify::new()),
        windows,
        Shutdown::new(),
    )
    .with_fleet(ledger.fleet())
}

async fn token(ledger: &Ledger, kind: Kind, name: &str, tenant: Option<&str>) -> String {
    let new = NewToken { kind, principal: name, tenant, expires_at: None, created_by: "operator:test" };
    let mut conn = ledger.pool().acquire().await.unwrap();
    tokens::create(&mut conn, &new).await.unwrap().1
}

struct Desk {
    router: Router,
}

impl Desk {
    fn at(ledger: &Ledger) -> Self {
        Self { router: api::router(state(ledger)) }
    }

    async fn call(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> (StatusCode, Value) {
        let (status, _, body) = self.whole(method, path, token, body, None).await;
        (status, body)
    }

    async fn whole(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> (StatusCode, http::HeaderMap, Value) {
        let mut request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(tag) = if_match {
            request = request.header("if-match", tag);
        }
        let request = request.body(body.map_or_else(Body::empty, |body| Body::from(body.to_string()))).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        conforms(method, path, parts.status, &parts.headers, std::str::from_utf8(&bytes).unwrap());
        (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

async fn in_doubt(ledger: &Ledger, reference: &str) -> (Uuid, Uuid) {
    let id = ledger.enqueue(reference).await;
    ledger.attempt(id, lost()).await;
    (id, escalation(ledger, id).await)
}

#[tokio::test]
async fn every_verb_is_forbidden_to_producers_and_metrics_readers() {
    let ledger = Ledger::new().await;
    let (id, escalated) = in_doubt(&ledger, "INV-1").await;
    let desk = Desk::at(&ledger);
    let paths = |verb: &str| [format!("/v1/intents/{id}/acts/{verb}"), format!("/v1/escalations/{escalated}/{verb}")];
    for kind in Kind::ALL {
        let tenant = (kind == Kind::Producer).then_some(TENANT);
        let caller = token(&ledger, kind, "someone", tenant).await;
        let person = matches!(kind, Kind::Responder | Kind::Admin);
        for path in ["/v1/escalations".to_owned(), format!("/v1/escalations/{escalated}")] {
            let (status, _) = desk.call("GET", &path, &caller, None).await;
            assert_eq!(status.as_u16(), if person { 200 } else { 403 }, "{kind:?} {path}");
        }
        for path in VERBS.into_iter().flat_map(paths) {
            // Nothing is said with it: a person is told what is missing or what the newest version is, others are told nothing.
            let (status, body) = desk.call("POST", &path, &caller, Some(&json!({ "version": 99 }))).await;
            if person {
                let status = status.as_u16();
                let admins = path.ends_with("unpark") && kind == Kind::Responder;
                assert!(
                    [409, 422].contains(&status) || admins || (200..300).contains(&status),
                    "{path} {status} {body}"
                );
            } else {
                assert_eq!(
                    (status.as_u16(), body["type"].as_str()),
                    (403, Some("urn:settled:problem:forbidden")),
                    "{path}"
                );
            }
            // No act by GET.
            let (status, _) = desk.call("GET", &path, &caller, None).await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
    }
    assert!(
        !acts(&ledger, id).await.iter().any(|act| ["sent", "absent", "close", "send_again"].contains(&act.as_str()))
    );
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let ledger = Ledger::new().await;
    let (id, _) = in_doubt(&ledger, "INV-1").await;
    let (desk, ada) = (Desk::at(&ledger), token(&ledger, Kind::Responder, "ada", None).await);
    for (verb, body, field) in [
        ("sent", json!({ "version": 1 }), "evidence"),
        ("absent", json!({ "evidence": "  ", "version": 1 }), "evidence"),
        ("close", json!({ "version": 1 }), "reason"),
        ("close", json!({ "reason": "x", "evidence": "y", "version": 1 }), "evidence"),
        ("send_again", json!({ "reason": "x", "version": 1 }), "reference"),
        ("retract", json!({ "reason": "x", "version": 1 }), "statement"),
        ("close", json!({ "reason": "nobody knows" }), "version"),
    ] {
        let (status, problem) = desk.call("POST", &format!("/v1/intents/{id}/acts/{verb}"), &ada, Some(&body)).await;
        assert_eq!((status.as_u16(), problem["field"].as_str()), (422, Some(field)), "{verb}: {problem}");
        assert_eq!(problem["type"], "urn:settled:problem:incomplete");
    }
    let unknown = format!("/v1/intents/{id}/acts/resend");
    assert_eq!(desk.call("POST", &unknown, &ada, Some(&json!({}))).await.0, StatusCode::NOT_FOUND);
    assert!(acts(&ledger, id).await.is_empty());
}

#[tokio::test]
async fn the_slower_one_is_told_who_was_faster_and_not_to_repeat() {
    let ledger = Ledger::new().await;
    let (id, escalated) = in_doubt(&ledger, "INV-1").await;
    let desk = Desk::at(&ledger);
    let (ada, bob) =
        (token(&ledger, Kind::Responder, "ada", None).await, token(&ledger, Kind::Responder, "bob", None).await);
    let (_, page) = desk.call("GET", &format!("/v1/escalations/{escalated}"), &bob, None).await;
    let version = page["versions"]["intent"].as_i64().unwrap();
    let path = format!("/v1/escalations/{escalated}/sent");
    let body = json!({ "evidence": "in their list", "version": version });
    let (status, done) = desk.call("POST", &path, &ada, Some(&body)).await;
    assert_eq!((status, done["state"].as_str()), (StatusCode::OK, Some("sent")), "{done}");
    let (status, again) = desk.call("POST", &path, &ada, Some(&body)).await;
    assert_eq!((status, again["repeated"].as_bool()), (StatusCode::OK, Some(true)));
    let body = json!({ "evidence": "not in their list" });
    let tag = format!("\"{version}\"");
    let path = format!("/v1/intents/{id}/acts/absent");
    let (status, headers, problem) = desk.whole("POST", &path, &bob, Some(&body), Some(&tag)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(headers["x-should-retry"], "false");
    assert_eq!(problem["type"], "urn:settled:problem:stale");
    assert_eq!(problem["who"], "responder:ada");
    assert_eq!(problem["what"], "said that it was sent: in their list");
    assert!(problem["when"].is_string() && problem["version"].as_i64().unwrap() > version);
    assert_eq!(acts(&ledger, id).await, ["sent"]);
}

#[tokio::test]
async fn the_list_is_filtered_paged_and_grouped_and_shows_a_tenant_its_own_only() {
    let ledger = Ledger::new().await;
    ledger.grant("other").await;
    for n in 1..=3 {
        in_doubt(&ledger, &format!("INV-{n}")).await;
    }
    let mut call = ledger.call("INV-9");
    call.options.tenant = Some("other".to_owned());
    let foreign = ledger.ask_for(&call).await.unwrap().intent_id;
    ledger.attempt(foreign, lost()).await;
    let desk = Desk::at(&ledger);
    let all = token(&ledger, Kind::Responder, "ada", None).await;
    let own = token(&ledger, Kind::Responder, "eve", Some(TENANT)).await;
    let count = async |query: &str, token: &str| {
        let (status, body) = desk.call("GET", &format!("/v1/escalations{query}"), token, None).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body["escalations"].as_array().unwrap().len()
    };
    assert_eq!(count("", &all).await, 4);
    assert_eq!(count("", &own).await, 3);
    assert_eq!(count("?tenant=other", &all).await, 1);
    assert_eq!(count("?reason=inconclusive", &all).await, 0);
    assert_eq!(count("?destination=ledger-hook&claimed=false", &all).await, 4);
    assert_eq!(count("?state=closed", &all).await, 0);
    assert_eq!(desk.call("GET", "/v1/escalations?tenant=other", &own, None).await.0, StatusCode::FORBIDDEN);
    let theirs = escalation(&ledger, foreign).await;
    assert_eq!(desk.call("GET", &format!("/v1/escalations/{theirs}"), &own, None).await.0, StatusCode::NOT_FOUND);
    let (_, first) = desk.call("GET", "/v1/escalations?limit=3", &all, None).await;
    assert_eq!(first["causes"][0]["open"], 4);
    assert_eq!(first["causes"][0]["cause"], "no_look_up/ledger-hook");
    let next = first["next"].as_str().unwrap();
    assert_eq!(count(&format!("?limit=3&before={next}"), &all).await, 1);
    // Snoozed ones are left out until their time has come; claimed ones are mine.
    let (_, page) = desk.call("GET", "/v1/escalations", &own, None).await;
    let id = page["escalations"][0]["id"].as_str().unwrap();
    let until = ledger.now() + chrono::TimeDelta::hours(2);
    let (status, _) =
        desk.call("POST", &format!("/v1/escalations/{id}/snooze"), &own, Some(&json!({ "until": until }))).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((count("", &own).await, count("?snoozed=true", &own).await), (2, 3));
    assert_eq!(desk.call("POST", &format!("/v1/escalations/{id}/claim"), &own, None).await.0, StatusCode::OK);
    assert_eq!((count("?mine=true&snoozed=true", &own).await, count("?claimed=true&snoozed=true", &own).await), (1, 1));
    ledger.clock.advance(Duration::from_secs(3 * 3600));
    assert_eq!(count("", &own).await, 3);
    let (status, _) = desk.call("GET", "/v1/escalations?reason=whatever", &all, None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_page_holds_what_one_decides_from() {
    let ledger = Ledger::new().await;
    let (id, escalated) = in_doubt(&ledger, "INV-1").await;
    let (desk, ada) = (Desk::at(&ledger), token(&ledger, Kind::Responder, "ada", None).await);
    let (_, page) = desk.call("GET", &format!("/v1/escalations/{escalated}"), &ada, None).await;
    assert_eq!(page["costs"], json!({ "if_twice": "paid twice", "if_never": "not paid" }));
    assert_eq!(page["intent"]["intent_id"], id.to_string());
    assert_eq!(page["intent"]["holds_effect"], true);
    assert_eq!(page["suggestion"]["act"], "sent");
    assert!(page["suggestion"]["rule"].as_str().unwrap().contains("recorded evidence"));
    assert_eq!(page["doubts"][0]["words"], "nobody can ask this downstream");
    assert_eq!(page["stakes"]["channel"], "webhook");
    let events = page["intent"]["events"].as_array().unwrap();
    assert!(events.iter().any(|e| e["event"] == "attempt_ended" && e["outcome"] == "ambiguous"));
    assert!(!page.to_string().contains("about INV-1"), "never the payload");
}

/// The API on a real port, and the command line against it.
struct Terminal {
    url: String,
    shutdown: Shutdown,
}

impl Terminal {
    async fn at(ledger: &Ledger) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = Shutdown::new();
        tokio::spawn(api::serve(listener, state(ledger), shutdown.clone()));
        Self { url, shutdown }
    }

    async fn run(&self, token: &str, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_settled"));
        command.arg("escalations").args(arguments);
        command.env("SETTLED_URL", &self.url).env("SETTLED_TOKEN", token).env_remove("SETTLED_TOKEN_FILE");
        command.output().await.unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.shutdown.begin();
        self.shutdown.hurry();
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_reads_and_decides_from_the_command_line() {
    let ledger = Ledger::new().await;
    let (id, escalated) = in_doubt(&ledger, "INV-2291").await;
    let escalated = escalated.to_string();
    let terminal = Terminal::at(&ledger).await;
    let ada = token(&ledger, Kind::Responder, "ada", None).await;
    let listed = terminal.run(&ada, &["list"]).await;
    assert!(out(&listed).contains(&escalated) && out(&listed).contains("no_look_up"), "{}", err(&listed));
    let causes = terminal.run(&ada, &["list", "--causes", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(out(&causes).trim()).unwrap()["open"], 1);
    let shown = out(&terminal.run(&ada, &["show", &escalated]).await);
    for part in [
        "WHAT WAS TO HAPPEN",
        "INV-2291 to ledger-hook by webhook",
        "UNKNOWN after 1 attempt(s); nobody else may ask for it",
        "AMBIGUOUS",
        "nobody can ask this downstream",
        "happens twice  paid twice",
        "the rule: nobody can ask this downstream for you",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let version = ledger.case(id).await.intent.version;
    let line = format!("settled escalations sent {escalated} --version {version} --evidence");
    assert!(shown.contains(&line), "{line} is not in\n{shown}");
    assert_eq!(terminal.run(&ada, &["claim", &escalated, "--for", "1h30m"]).await.status.code(), Some(0));
    // Without evidence nothing is sent over the wire.
    let lacking = terminal.run(&ada, &["sent", &escalated, "--evidence", " "]).await;
    assert_eq!((lacking.status.code(), err(&lacking).contains("--evidence: must say")), (Some(65), true));
    let bob = token(&ledger, Kind::Responder, "bob", None).await;
    let kept = terminal.run(&bob, &["absent", &escalated, "--evidence", "not in the list"]).await;
    assert_eq!(kept.status.code(), Some(6), "{}", err(&kept));
    assert!(err(&kept).contains("responder:ada was faster: claimed it until"), "{}", err(&kept));
    let version = version.to_string();
    let arguments = ["sent", &escalated, "--version", &version, "--evidence", "in their list"];
    let done = terminal.run(&ada, &arguments).await;
    assert_eq!(
        (done.status.code(), out(&done).contains("sent: the intent is sent")),
        (Some(0), true),
        "{}",
        err(&done)
    );
    let late = terminal.run(&bob, &["close", &escalated, "--version", &version, "--reason", "x"]).await;
    assert_eq!(late.status.code(), Some(6), "{}", err(&late));
    assert!(err(&late).contains("said that it was sent: in their list"), "{}", err(&late));
    let bot = token(&ledger, Kind::Producer, "bot", Some(TENANT)).await;
    assert_eq!(terminal.run(&bot, &["list"]).await.status.code(), Some(77));
    assert_eq!(acts(&ledger, id).await, ["claim", "sent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_asks_nobody_is_decided_by_its_own_id() {
    let ledger = Ledger::new().await;
    let id = ledger.enqueue("INV-1").await;
    let terminal = Terminal::at(&ledger).await;
    let ada = token(&ledger, Kind::Responder, "ada", None).await;
    let intent = id.to_string();
    let done = terminal.run(&ada, &["cancel", &intent, "--intent", "--reason", "wrong amount", "--json"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    let told: Value = serde_json::from_str(out(&done).trim()).unwrap();
    assert_eq!((told["state"].as_str(), told["holds_effect"].as_bool()), (Some("cancelled"), Some(false)));
    let retracted = terminal
        .run(&ada, &["retract", &intent, "--intent", "--reason", "no", "--statement", &told["journal_id"].to_string()])
        .await;
    assert_eq!(retracted.status.code(), Some(0), "{}", err(&retracted));
    ledger.attempt(id, sent("p-1")).await;
    let late = terminal.run(&ada, &["cancel", &intent, "--intent", "--reason", "x"]).await;
    assert_eq!(late.status.code(), Some(7), "{}", err(&late));
    let without = terminal.run("", &["list"]).await;
    assert_eq!(without.status.code(), Some(2), "{}", err(&without));
}
