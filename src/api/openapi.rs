//! The description of this API, OpenAPI 3.1, made from the attributes of the handlers and of what they read and answer.
//!
//! Served at `GET /openapi.json` and printed by `settled openapi`. A test compares it with the routes.

pub(super) mod bodies;
mod headers;
mod problems;
pub(super) mod refusals;

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        OpenApi as Document,
        security::{Http, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use headers::{Everywhere, HeadersAreText, WithoutBody};

use super::problem::{Kind as ProblemKind, Problem};
use crate::{
    domain::{reason::Reason, state::State},
    store::tokens::Kind,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "settled", description = "A transactional outbox and reconciler for side effects that must not happen twice. \
        At-least-once attempts. At most one effect where the downstream refuses repeats. Where it can only be asked, no second \
        attempt without recorded evidence of absence; a copy that shows up later is reported, not prevented.\n\n\
        Every refusal is an RFC 9457 problem whose `type` never changes its meaning. Every 409 and 422 carries \
        `x-should-retry: false`; a 503 may be repeated as it was, with the same identity, after `Retry-After`. The caller, its \
        kind and its tenant come from the token alone."),
    paths(
        super::asking::enqueue,
        super::intents::list,
        super::bulk::enqueue,
        super::intents::unserved,
        super::intents::show,
        super::intents::story,
        super::asking::cancel,
        super::escalations::act_on_intent,
        super::escalations::list,
        super::escalations::show,
        super::escalations::act_on_escalation,
        super::pauses::list,
        super::pauses::add,
        super::pauses::remove,
        super::sightings::take,
        super::health::live,
        super::health::ready,
        super::health::metrics,
        show,
    ),
    components(schemas(
        problems::ProblemType, problems::ProblemDocument, bodies::Verb, bodies::Openness, bodies::PauseScope, State, Reason
    )),
    tags(
        (name = "intents", description = "Ask for effects, and how they stand"),
        (name = "people", description = "What waits for a person, and what people may do"),
        (name = "pauses", description = "Stop sending, and send again"),
        (name = "reports", description = "What downstreams report by themselves"),
        (name = "health", description = "Life, readiness, numbers, this document"),
    ),
    modifiers(&Tokens, &Everywhere, &WithoutBody, &HeadersAreText),
)]
struct Api;

/// One scheme for each kind of token; which operation takes which is said there.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        for kind in Kind::ALL {
            let words = match kind {
                Kind::Producer => "Asks for effects and reads those of its own tenant; can never decide",
                Kind::Responder => "A person who reads and decides",
                Kind::Admin => "A person who may do all that people may",
                Kind::Metrics => "Reads the numbers",
                Kind::Downstream => "Reports for one destination",
            };
            let form = format!("`stl_{}_…`, from `settled tokens create`", kind.as_str());
            let bearer = HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .bearer_format("stl")
                .description(Some(format!("{words}: {form}")));
            components.security_schemes.insert(kind.as_str().to_owned(), SecurityScheme::Http(bearer.build()));
        }
        let mut basic = Http::new(HttpAuthScheme::Basic);
        basic.description =
            Some("For downstreams whose call-backs can carry nothing else: the token is the password".to_owned());
        components.security_schemes.insert("downstream_basic".to_owned(), SecurityScheme::Http(basic));
    }
}

/// The document; made once.
static TEXT: LazyLock<Result<String, String>> =
    LazyLock::new(|| Api::openapi().to_pretty_json().map_err(|error| error.to_string()));

/// The document as JSON.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn document() -> Result<&'static str, &'static str> {
    TEXT.as_deref().map_err(String::as_str)
}

/// The description of this API.
#[utoipa::path(
    get, path = "/openapi.json", tag = "health", operation_id = "openapi",
    summary = "This document",
    description = "OpenAPI 3.1.",
    responses((status = 200, description = "This document", body = HashMap<String, Value>)),
    security(()),
)]
pub(super) async fn show() -> Response {
    match document() {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            tracing::error!(error, "the description of the API could not be written");
            Problem::new(ProblemKind::Internal, "the document could not be written").into_response()
        }
    }
}
