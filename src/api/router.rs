//! Routes, request ids and the count of answers.

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};
use http::{HeaderName, HeaderValue};
use uuid::Uuid;

use super::{
    AppState, asking, bulk, escalations, health, intents, openapi, pauses,
    problem::{Kind, Problem, REQUEST_ID},
    sightings,
};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// All routes.
pub fn router(state: AppState) -> Router {
    Router::new()
        .route("/v1/intents", post(asking::enqueue).get(intents::list))
        .route("/v1/intents/bulk", post(bulk::enqueue))
        .route("/v1/requests", get(intents::unserved))
        .route("/v1/intents/{id}", get(intents::show))
        .route("/v1/intents/{id}/story", get(intents::story))
        .route("/v1/intents/{id}/cancel", post(asking::cancel))
        .route("/v1/intents/{id}/acts/{act}", post(escalations::act_on_intent))
        .route("/v1/escalations", get(escalations::list))
        .route("/v1/escalations/{id}", get(escalations::show))
        .route("/v1/escalations/{id}/{act}", post(escalations::act_on_escalation))
        .route("/v1/pauses", get(pauses::list).post(pauses::add).delete(pauses::remove))
        .route("/v1/sightings/{destination}", post(sightings::take))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::show))
        .method_not_allowed_fallback(|| async {
            Problem::new(Kind::MethodNotAllowed, "see the documentation of this path")
        })
        .fallback(|| async { Problem::new(Kind::NotFound, "there is no such path") })
        .layer(middleware::from_fn_with_state(state.clone(), observe))
        .with_state(state)
}

/// Gives every call an id (the caller's own, if it is a plain word), and counts and logs the answer.
async fn observe(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let id = request
        .headers()
        .get(&X_REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|text| {
            (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        })
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    // The template of the route, never the path: ids and references are no labels.
    let route =
        request.extensions().get::<MatchedPath>().map_or_else(|| "(none)".to_owned(), |path| path.as_str().to_owned());
    let method = request.method().clone();
    let mut response = REQUEST_ID.scope(id.clone(), next.run(request)).await;
    let status = response.status().as_u16();
    state.metrics.http_answer(&route, status);
    tracing::debug!(request.id = id, %method, route, status, "answered");
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response
}
