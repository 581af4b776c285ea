//! The API over a test's own database, called in the process.

use std::sync::Arc;

use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use settled::{
    api::{self, AppState},
    clock::{Clock, SystemClock},
    config::retention::Windows,
    engine::fleet::Fleet,
    lifecycle::Shutdown,
    store::tokens::{self, Kind, NewToken},
    telemetry::{metrics::Metrics, progress::Progress},
};
use tokio::sync::Notify;
use tower::ServiceExt;

use super::openapi::conforms;
use crate::support::db::Database;

/// One API.
pub(super) struct Api {
    pub(super) db: Database,
    pub(super) router: Router,
    pub(super) state: AppState,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts a problem of that name and status, and returns its members.
    #[track_caller]
    pub(super) fn problem(&self, status: u16, name: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["type"], format!("urn:settled:problem:{name}"), "{body}");
        assert_eq!(body["status"], status);
        for member in ["title", "detail", "request_id"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{member} of {body}");
        }
        assert_eq!(self.header("x-should-retry"), (status == 409 || status == 422).then_some("false"));
        body
    }
}

impl Api {
    pub(super) async fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock)).await
    }

    /// With (no) destinations served, so that people can act.
    pub(super) async fn with_fleet() -> Self {
        let Self { db, state, .. } = Self::new().await;
        let state = state.with_fleet(Arc::new(Fleet::new(Vec::new(), Box::new(|_| Ok(None)))));
        Self { router: api::router(state.clone()), state, db }
    }

    pub(super) async fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let db = Database::new().await;
        let day = std::time::Duration::from_secs(86_400);
        let windows = Windows { keys: day * 180, retries: day, look_back: day, callers: day };
        let progress = Progress::new(Arc::clone(&clock));
        let state = AppState::new(
            db.pool.clone(),
            clock,
            Metrics::new(),
            progress,
            Arc::new(Notify::new()),
            windows,
            Shutdown::new(),
        );
        Self { router: api::router(state.clone()), state, db }
    }

    pub(super) async fn token(&self, kind: Kind, tenant: Option<&str>) -> String {
        let new = NewToken { kind, principal: "ada", tenant, expires_at: None, created_by: "operator:test" };
        let mut conn = self.db.pool.acquire().await.unwrap();
        tokens::create(&mut conn, &new).await.unwrap().1
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().to_string(), request.uri().to_string());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        conforms(&method, &path, parts.status, &parts.headers, &text);
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(super) async fn call(&self, method: &str, path: &str, token: &str, body: Option<&str>) -> Answer {
        self.send(request(method, path, token, body)).await
    }

    pub(super) async fn get(&self, path: &str, token: &str) -> Answer {
        self.call("GET", path, token, None).await
    }

    pub(super) async fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        self.call("POST", path, token, Some(&body.to_string())).await
    }

    /// A webhook destination that tenants may use.
    pub(super) async fn destination(&self, name: &str, tenants: &[&str]) {
        self.destination_with(name, "webhook", &Value::Null, tenants).await;
    }

    /// A destination with rules of its own.
    pub(super) async fn destination_with(&self, name: &str, channel: &str, rules: &Value, tenants: &[&str]) {
        let rules = if rules.is_null() { json!({}) } else { rules.clone() };
        sqlx::query(
            "insert into settled.destinations (name, channel, effect_scope, revision, generation, rules, definition)
             values ($1, $2, $1, 1, 'g1', $3, '{}')",
        )
        .bind(name)
        .bind(channel)
        .bind(rules)
        .execute(&self.db.pool)
        .await
        .unwrap();
        for tenant in tenants {
            sqlx::query("insert into settled.grants (tenant, destination) values ($1, $2)")
                .bind(tenant)
                .bind(name)
                .execute(&self.db.pool)
                .await
                .unwrap();
        }
    }
}

pub(super) fn request(method: &str, path: &str, token: &str, body: Option<&str>) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        builder = builder.header("authorization", format!("Bearer {token}"));
    }
    if body.is_some() {
        builder = builder.header("content-type", "application/json");
    }
    builder.body(body.map_or_else(Body::empty, |text| Body::from(text.to_owned()))).unwrap()
}
