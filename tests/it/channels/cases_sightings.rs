//! Case 100 and what else a downstream reports by itself: accepted is not delivered, and a late "failed" proves an effect.

use std::sync::Arc;

use axum::{Router, body::Body};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use settled::{
    api::{self, AppState},
    clock::Clock,
    config::retention::Windows,
    demo::fakes::{faults::Fault, sms::Sms},
    lifecycle::Shutdown,
    store::tokens::{self, Kind, NewToken},
    telemetry::progress::Progress,
};
use tokio::sync::Notify;
use tower::ServiceExt;
use uuid::Uuid;

use crate::support::{
    fragments::texts,
    world::{World, new_request},
};

const MAPPING: &str = r#"
[sightings]
key_at = "/client_reference"
id_at = "/sid"
status_at = "/status"
time_at = "/at"
code_at = "/error_code"
accepted = ["queued", "sent"]
delivered = ["delivered"]
failed = ["undelivered", "failed"]
"#;

/// A daemon with a provider of text messages, and the surface that the provider reports to.
struct House {
    world: World,
    provider: Sms,
    router: Router,
    token: String,
}

impl House {
    async fn new() -> Self {
        Self::mapped(MAPPING).await
    }

    async fn mapped(mapping: &str) -> Self {
        let provider = Sms::start().await.unwrap();
        // Nobody can be asked: what is learned comes from reports alone.
        let entry = texts("texts", &provider, "");
        let entry = entry.split("[look_up]").next().unwrap().replace("channel =", "in_doubt = \"person\"\nchannel =");
        let world = World::new(&[format!("{entry}{mapping}"), other(&provider)]).await;
        let clock: Arc<dyn Clock> = world.clock.clone();
        let day = std::time::Duration::from_secs(86_400);
        let state = AppState::new(
            world.db.pool.clone(),
            Arc::clone(&clock),
            Arc::clone(&world.sending.metrics),
            Progress::new(clock),
            Arc::new(Notify::new()),
            Windows { keys: day * 180, retries: day, look_back: day, callers: day },
            Shutdown::new(),
        )
        .with_fleet(Arc::clone(&world.fleet));
        let token = token(&world, Kind::Downstream, "texts").await;
        Self { world, provider, router: api::router(state), token }
    }

    async fn enqueue(&self, reference: &str) -> Uuid {
        let payload = format!(r#"{{"to":"+4915112345678","text":"{reference}: your invoice"}}"#);
        self.world.enqueue("texts", reference, &payload).await
    }

    async fn key(&self, id: Uuid) -> String {
        self.world.text("select key from settled.intents where id = $1", id).await.unwrap()
    }

    async fn call(&self, path: &str, authorization: &str, media: &str, body: String) -> (StatusCode, Value) {
        let request = Request::post(path)
            .header("authorization", authorization)
            .header("content-type", media)
            .body(Body::from(body))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    /// The provider reports; `minute` is its own time.
    async fn report(&self, key: &str, sid: &str, status: &str, minute: u32, code: Option<&str>) -> Value {
        let body = json!({"client_reference": key, "sid": sid, "status": status, "error_code": code,
            "at": format!("2026-01-01T10:{minute:02}:00Z")});
        let bearer = format!("Bearer {}", self.token);
        let (code, answer) = self.call("/v1/sightings/texts", &bearer, "application/json", body.to_string()).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
        answer
    }

    async fn marks(&self, id: Uuid) -> String {
        self.world.text("select array_to_string(marks, ',') from settled.intents where id = $1", id).await.unwrap()
    }
}

fn other(provider: &Sms) -> String {
    let entry = texts("other", provider, "");
    entry.split("[look_up]").next().unwrap().replace("channel =", "in_doubt = \"person\"\nchannel =")
}

async fn token(world: &World, kind: Kind, principal: &str) -> String {
    let new = NewToken { kind, principal, tenant: None, expires_at: None, created_by: "operator:test" };
    let mut conn = world.db.pool.acquire().await.unwrap();
    tokens::create(&mut conn, &new).await.unwrap().1
}

#[tokio::test]
async fn case_100_undelivered_after_accepted_is_told_to_people_and_sent_again_by_nobody() {
    let mut house = House::new().await;
    let (overflow, filtered, out_of_order) =
        (house.enqueue("INV-1").await, house.enqueue("INV-2").await, house.enqueue("INV-3").await);
    house.world.dispatch().await;
    for (id, code) in [(overflow, "30001"), (filtered, "30007")] {
        assert_eq!(house.world.state(id).await, "sent");
        let key = house.key(id).await;
        house.report(&key, "SM1", "queued", 1, None).await;
        assert!(house.world.reasons(id).await.is_empty(), "accepted is not delivered, and nobody is told of either");
        assert_eq!(house.report(&key, "SM1", "undelivered", 2, Some(code)).await["taken"], 1);
        assert_eq!((house.world.state(id).await.as_str(), house.marks(id).await.as_str()), ("sent", "bounced"));
        assert_eq!(house.world.reasons(id).await, ["bounced"]);
        let told = house.world.text("select summary from settled.escalations where intent_id = $1", id).await.unwrap();
        assert!(told.contains(code), "{told}");
    }
    // Delivered at 10:05, and the older "failed" of 10:03 comes after it: no flapping.
    let key = house.key(out_of_order).await;
    house.report(&key, "SM3", "delivered", 5, None).await;
    house.report(&key, "SM3", "failed", 3, Some("30001")).await;
    assert_eq!((house.marks(out_of_order).await.as_str(), house.world.reasons(out_of_order).await.len()), ("", 0));
    // The other way round it is taken back.
    let key = house.key(overflow).await;
    house.report(&key, "SM1", "delivered", 9, None).await;
    assert_eq!((house.marks(overflow).await.as_str(), house.world.reasons(overflow).await.len()), ("", 0));
    house.world.turn(86_400);
    house.world.dispatch().await;
    assert_eq!(house.provider.effects().all().len(), 3, "nothing was sent again");
}

#[tokio::test]
async fn a_report_settles_a_doubt_whatever_it_says() {
    let mut house = House::new().await;
    for (reference, status, mark) in
        [("INV-1", "delivered", ""), ("INV-2", "failed", "bounced"), ("INV-3", "queued", "")]
    {
        house.provider.faults().next(Fault::LoseReply);
        let id = house.enqueue(reference).await;
        house.world.dispatch().await;
        assert_eq!(house.world.state(id).await, "unknown");
        let key = house.key(id).await;
        house.report(&key, "SM-late", status, 1, None).await;
        assert_eq!((house.world.state(id).await.as_str(), house.marks(id).await.as_str()), ("sent", mark), "{status}");
        let provider_id = house.world.text("select provider_id from settled.intents where id = $1", id).await;
        assert_eq!(provider_id.as_deref(), Some("SM-late"));
        let reasons = house.world.reasons(id).await;
        assert_eq!(
            reasons.iter().map(String::as_str).collect::<Vec<_>>(),
            if mark.is_empty() { vec![] } else { vec![mark] }
        );
    }
}

#[tokio::test]
async fn a_report_before_our_own_result_is_written_loses_neither() {
    let mut house = House::new().await;
    let id = house.enqueue("INV-1").await;
    let ended = house.world.send_only().await;
    let key = house.key(id).await;
    house.report(&key, &house.provider.effects().all()[0].id.clone(), "delivered", 1, None).await;
    assert_eq!(house.world.state(id).await, "sent");
    house.world.write(ended).await;
    assert_eq!(house.world.state(id).await, "sent");
    assert_eq!((house.marks(id).await.as_str(), house.world.reasons(id).await.len()), ("", 0));
    let open: i64 = sqlx::query_scalar("select count(*) from settled.attempts where closed_at is null")
        .fetch_one(&house.world.db.pool)
        .await
        .unwrap();
    assert_eq!(open, 0);
}

#[tokio::test]
async fn the_same_report_again_changes_nothing_and_an_undeclared_word_settles_nothing() {
    let mut house = House::new().await;
    house.provider.faults().next(Fault::LoseReply);
    let id = house.enqueue("INV-1").await;
    house.world.dispatch().await;
    let key = house.key(id).await;
    assert_eq!(house.report(&key, "SM1", "scheduled", 1, None).await["taken"], 1);
    assert_eq!(house.world.state(id).await, "unknown");
    assert_eq!(house.report(&key, "SM1", "delivered", 2, None).await["taken"], 1);
    let version = "select version::text from settled.intents where id = $1";
    let before = house.world.text(version, id).await;
    for _ in 0..3 {
        assert_eq!(house.report(&key, "SM1", "delivered", 2, None).await["repeated"], 1);
    }
    assert_eq!(house.world.text(version, id).await, before);
}

#[tokio::test]
async fn a_key_that_no_row_explains_is_told_and_what_is_no_key_is_ignored() {
    let mut house = House::new().await;
    let id = house.enqueue("INV-1").await;
    house.world.dispatch().await;
    let key = house.key(id).await;
    for stranger in ["INV-1", "", &key[..31], &format!("{key}0")] {
        let answer = house.report(stranger, "SM9", "delivered", 1, None).await;
        assert_eq!((&answer["ignored"], &answer["taken"]), (&json!(1), &json!(0)), "{stranger}");
    }
    for n in 0..3 {
        let answer = house.report(&format!("{n:032x}"), "SM9", "delivered", 1, None).await;
        assert_eq!(answer["unexplained"], 1);
    }
    let told: Vec<(String, String)> =
        sqlx::query_as("select reason, destination from settled.escalations where subject = 'sighting'")
            .fetch_all(&house.world.db.pool)
            .await
            .unwrap();
    assert_eq!(told, [("orphan_sighting".to_owned(), "texts".to_owned())], "one line for all of them");
}

#[tokio::test]
async fn another_name_for_the_same_key_after_a_doubt_is_a_second_effect() {
    let mut house = House::new().await;
    house.provider.faults().next(Fault::LoseReply);
    let id = house.enqueue("INV-1").await;
    house.world.dispatch().await;
    let key = house.key(id).await;
    // A person was sure, and was wrong.
    let act = |act: &str, statement: Value| {
        let data = json!({"act": act, "statement": statement});
        sqlx::query(
            "insert into settled.journal (intent_id, kind, actor, data) values ($1, 'act', 'responder:ada', $2)",
        )
        .bind(id)
        .bind(data)
    };
    act("absent", json!({"statement": "absent", "upto": 1})).execute(&house.world.db.pool).await.unwrap();
    act("send_again", json!({"statement": "send_again", "upto": 1})).execute(&house.world.db.pool).await.unwrap();
    let mut conn = house.world.db.pool.acquire().await.unwrap();
    let at = house.world.clock.sql_now();
    let case = settled::engine::folding::Case::lock(&mut conn, id, at).await.unwrap().unwrap();
    let policy = house.world.fleet.policy("texts");
    settled::engine::folding::settle(&mut conn, &case, &policy, &settled::engine::folding::Cause::of("responder:ada"))
        .await
        .unwrap();
    drop(conn);
    house.world.dispatch().await;
    assert_eq!(house.world.state(id).await, "sent");
    let own = house.world.text("select provider_id from settled.intents where id = $1", id).await.unwrap();
    house.report(&key, &own, "delivered", 1, None).await;
    assert_eq!(house.world.reasons(id).await, Vec::<String>::new());
    house.report(&key, "SM-first", "delivered", 2, None).await;
    assert_eq!(
        (house.marks(id).await.as_str(), house.world.reasons(id).await),
        ("duplicate_found", vec!["duplicate_found".to_owned()])
    );
}

#[tokio::test]
async fn only_the_token_of_the_destination_may_report_for_it_and_it_may_do_nothing_else() {
    let mut house = House::new().await;
    let id = house.enqueue("INV-1").await;
    house.world.dispatch().await;
    let key = house.key(id).await;
    let form = format!("client_reference={key}&sid=SM1&status=delivered&at=2026-01-01T10%3A00%3A00Z");
    let media = "application/x-www-form-urlencoded";
    let path = "/v1/sightings/texts";
    let producer = {
        let new = NewToken {
            kind: Kind::Producer,
            principal: "texts",
            tenant: Some("acme"),
            expires_at: None,
            created_by: "operator:test",
        };
        let mut conn = house.world.db.pool.acquire().await.unwrap();
        tokens::create(&mut conn, &new).await.unwrap().1
    };
    let foreign = token(&house.world, Kind::Downstream, "other").await;
    let basic = |token: &str| format!("Basic {}", STANDARD.encode(format!("provider:{token}")));
    let admin = token(&house.world, Kind::Admin, "ada").await;
    for (authorization, wanted) in [
        (format!("Bearer {producer}"), 403),
        (format!("Bearer {foreign}"), 403),
        (basic(&foreign), 403),
        (basic(&admin), 401),
        ("Bearer nothing".to_owned(), 401),
        (basic(&house.token), 200),
    ] {
        let (status, answer) = house.call(path, &authorization, media, form.clone()).await;
        assert_eq!(status.as_u16(), wanted, "{answer}");
    }
    // Another destination has no mapping; a body without a report is a wrong mapping, and is said to be.
    let (status, _) = house.call("/v1/sightings/other", &format!("Bearer {foreign}"), media, form).await;
    assert_eq!(status.as_u16(), 404);
    let (status, _) =
        house.call(path, &format!("Bearer {}", house.token), "application/json", r#"{"a":1}"#.to_owned()).await;
    assert_eq!(status.as_u16(), 400);
    for path in ["/v1/intents", "/v1/escalations", "/metrics"] {
        let request =
            Request::get(path).header("authorization", format!("Bearer {}", house.token)).body(Body::empty()).unwrap();
        assert_eq!(house.router.clone().oneshot(request).await.unwrap().status().as_u16(), 403, "{path}");
    }
    let payload = r#"{"to":"+4915112345678","text":"INV-9"}"#;
    house.world.request(&new_request("texts", "INV-9", payload, "run-9", 1)).await.unwrap();
}

#[tokio::test]
async fn a_time_that_no_calendar_of_the_ledger_has_takes_no_report_with_it() {
    let mut house = House::mapped(&format!("{MAPPING}time = \"unix\"\n")).await;
    house.provider.faults().for_reference("INV-1", Fault::LoseReply);
    let id = house.enqueue("INV-1").await;
    house.world.dispatch().await;
    assert_eq!(house.world.state(id).await, "unknown");
    let key = house.key(id).await;
    let bearer = format!("Bearer {}", house.token);
    for at in [-300_000_000_000_i64, 9_500_000_000_000, i64::MIN, i64::MAX] {
        let body = json!([{ "client_reference": key, "sid": at.to_string(), "status": "sent", "at": at }]).to_string();
        let (code, answer) = house.call("/v1/sightings/texts", &bearer, "application/json", body).await;
        assert_eq!((code, &answer["taken"]), (StatusCode::OK, &json!(1)), "{at}: {answer}");
    }
    assert_eq!(house.world.state(id).await, "sent");
}
