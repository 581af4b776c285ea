//! RFC 9457 problem documents. A type never changes its meaning; what a caller may do next is part of it.
//!
//! Internals never leave: a database error is logged here and answered as `unavailable` or `internal`.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::store::{
    error::StoreError,
    requests::{ConflictKind, Earlier, EnqueueError},
};

/// Set on every refusal of content under a known name; some SDKs repeat a 409 by themselves without it.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

tokio::task_local! {
    /// Id of the call that is being answered.
    pub(super) static REQUEST_ID: String;
}

/// The closed list of types, `urn:settled:problem:<name>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Not JSON, or a member that is missing, unknown, twice there or of a wrong type.
    Malformed,
    /// A value breaks a rule; the field is named.
    Invalid,
    /// Neither run and step nor an `Idempotency-Key`.
    IdentityRequired,
    /// No valid token.
    Unauthenticated,
    /// The token may not do this.
    Forbidden,
    /// Not there, or not for this caller.
    NotFound,
    /// No such method here.
    MethodNotAllowed,
    /// Too many bytes.
    TooLarge,
    /// The body is not announced as JSON.
    UnsupportedMediaType,
    /// The body did not arrive in time.
    TooSlow,
    /// Same identity or effect, other content.
    Conflict,
    /// Same `Idempotency-Key`, other content.
    KeyReused,
    /// The intent ended without effect; a repeat does not start it again.
    EndedWithoutEffect,
    /// The identity is older than what is kept.
    Expired,
    /// Another call about the same thing has not ended yet.
    RivalOpen,
    /// It was attempted already, so it cannot be cancelled by its producer.
    TooLate,
    /// Somebody else acted meanwhile; who and what is told.
    Stale,
    /// Items of a bulk call are refused, so nothing was enqueued; each is named by its index.
    BatchRefused,
    /// The act does not fit how things stand.
    NotPossible,
    /// A reason, evidence or another word is missing; the field is named.
    Incomplete,
    /// The ledger cannot be reached; the same call may be repeated with the same identity.
    Unavailable,
    /// Something unexpected.
    Internal,
}

impl Kind {
    /// All types.
    pub const ALL: [Self; 22] = [
        Self::Malformed,
        Self::Invalid,
        Self::IdentityRequired,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::TooSlow,
        Self::Conflict,
        Self::KeyReused,
        Self::EndedWithoutEffect,
        Self::Expired,
        Self::RivalOpen,
        Self::TooLate,
        Self::Stale,
        Self::BatchRefused,
        Self::NotPossible,
        Self::Incomplete,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Last part of the type, and the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Invalid => "invalid",
            Self::IdentityRequired => "identity_required",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::TooSlow => "too_slow",
            Self::Conflict => "conflict",
            Self::KeyReused => "key_reused",
            Self::EndedWithoutEffect => "ended_without_effect",
            Self::Expired => "expired",
            Self::RivalOpen => "rival_open",
            Self::TooLate => "too_late",
            Self::Stale => "stale",
            Self::BatchRefused => "batch_refused",
            Self::NotPossible => "not_possible",
            Self::Incomplete => "incomplete",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed | Self::Invalid | Self::IdentityRequired => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict | Self::EndedWithoutEffect | Self::TooLate | Self::Stale | Self::NotPossible => {
                StatusCode::CONFLICT
            }
            Self::KeyReused | Self::BatchRefused | Self::Incomplete => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Expired => StatusCode::GONE,
            Self::RivalOpen | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// In words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Malformed => "The body could not be read",
            Self::Invalid => "A value breaks a rule",
            Self::IdentityRequired => "The call has no identity",
            Self::Unauthenticated => "No valid token",
            Self::Forbidden => "Not allowed",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::TooLarge => "Too large",
            Self::UnsupportedMediaType => "The body must be application/json",
            Self::TooSlow => "The body did not arrive in time",
            Self::Conflict => "Other content under a known name",
            Self::KeyReused => "Other content under a known Idempotency-Key",
            Self::EndedWithoutEffect => "The intent ended without effect",
            Self::Expired => "The deadline has passed, or the identity has expired",
            Self::RivalOpen => "Another call about the same thing is still open",
            Self::TooLate => "It was attempted already",
            Self::Stale => "Somebody else was faster",
            Self::BatchRefused => "Items of the batch are refused",
            Self::NotPossible => "Not as things stand",
            Self::Incomplete => "Something must be said with it",
            Self::Unavailable => "The ledger cannot be reached",
            Self::Internal => "Something unexpected happened",
        }
    }
}

/// One problem, as it is answered.
#[derive(Debug, Clone)]
pub struct Problem {
    kind: Kind,
    detail: String,
    more: Map<String, Value>,
    retry_after: Option<u64>,
}

impl Problem {
    /// A problem in words.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retry_after = match kind {
            Kind::RivalOpen => Some(1),
            Kind::Unavailable => Some(2),
            Kind::Malformed
            | Kind::Invalid
            | Kind::IdentityRequired
            | Kind::Unauthenticated
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::MethodNotAllowed
            | Kind::TooLarge
            | Kind::UnsupportedMediaType
            | Kind::TooSlow
            | Kind::Conflict
            | Kind::KeyReused
            | Kind::EndedWithoutEffect
            | Kind::Expired
            | Kind::TooLate
            | Kind::Stale
            | Kind::BatchRefused
            | Kind::NotPossible
            | Kind::Incomplete
            | Kind::Internal => None,
        };
        Self { kind, detail: detail.into(), more: Map::new(), retry_after }
    }

    /// A rule that a field breaks.
    pub fn field(kind: Kind, field: impl Into<String>, rule: impl Into<String>) -> Self {
        let (field, rule) = (field.into(), rule.into());
        Self::new(kind, format!("{field}: {rule}")).with("field", field)
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// Its members, as they are answered.
    pub(super) fn members(&self) -> Map<String, Value> {
        let mut body = self.more.clone();
        body.insert("type".to_owned(), json!(format!("urn:settled:problem:{}", self.kind.name())));
        body.insert("title".to_owned(), json!(self.kind.title()));
        body.insert("status".to_owned(), json!(self.kind.status().as_u16()));
        body.insert("detail".to_owned(), json!(self.detail));
        body
    }

    /// Seconds after which the same call may be made again, where that is right.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Its type.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if let StoreError::Moved { .. } = error {
            return Self::new(Kind::RivalOpen, "somebody else moved it at this moment");
        }
        // 22021, 22P05: U+0000, which no text of Postgres can hold. Only a caller can have brought it.
        if error.sqlstate().is_some_and(|code| code == "22021" || code == "22P05") {
            return Self::new(Kind::Invalid, "a value holds U+0000, which cannot be kept");
        }
        let away = error.is_transient()
            || matches!(&error, StoreError::Database(e) if !matches!(e, sqlx::Error::Database(_)))
            // 25006: a server that only reads, as during a failover.
            || error.sqlstate().is_some_and(|c| c == "25006" || ["57P", "08", "53"].iter().any(|class| c.starts_with(class)));
        if away {
            tracing::warn!(%error, "the ledger could not answer a call");
            Self::new(
                Kind::Unavailable,
                "the ledger did not answer; the same call may be made again, with the same identity",
            )
        } else {
            tracing::error!(%error, "a call failed");
            Self::new(Kind::Internal, "see the log of the daemon under the request id")
        }
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        let words = error.to_string();
        let serialization = error.is_serialization();
        let about = |kind: Kind, earlier: &Earlier| {
            Self::new(kind, words.clone())
                .with("intent_id", earlier.intent_id.to_string())
                .with("state", earlier.state.clone())
        };
        match error {
            EnqueueError::Invalid { field, rule, .. } => {
                Self::new(Kind::Invalid, words).with("field", field).with("rule", rule)
            }
            EnqueueError::IdentityRequired => Self::new(
                Kind::IdentityRequired,
                "give run_id and step, or an Idempotency-Key header (in bulk idempotency_key): without one a repeat cannot be recognised",
            ),
            EnqueueError::NotAllowed(words) => Self::new(Kind::Forbidden, words),
            EnqueueError::NotFound(words) => Self::new(Kind::NotFound, words),
            EnqueueError::Conflict { conflict, words } => {
                let kind = match conflict.kind {
                    ConflictKind::CallerKey => Kind::KeyReused,
                    ConflictKind::Identity | ConflictKind::Effect => Kind::Conflict,
                };
                Self::new(kind, words)
                    .with("collides_in", json!(conflict.kind))
                    .with("pointers", json!(conflict.pointers))
                    .with("intent_id", conflict.intent_id.to_string())
                    .with("state", conflict.state)
            }
            EnqueueError::Expired(words) => Self::new(Kind::Expired, words),
            EnqueueError::EndedWithoutEffect(earlier) | EnqueueError::EffectHeld(earlier) => {
                about(Kind::EndedWithoutEffect, &earlier)
            }
            EnqueueError::TooLate { earlier, .. } => about(Kind::TooLate, &earlier),
            EnqueueError::RivalOpen(words) => Self::new(Kind::RivalOpen, words),
            EnqueueError::Database(_) if serialization => {
                Self::new(Kind::RivalOpen, "other transactions were faster several times in a row")
            }
            EnqueueError::Database(error) => error.into(),
        }
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let mut body = self.members();
        if let Ok(id) = REQUEST_ID.try_with(Clone::clone) {
            body.insert("request_id".to_owned(), json!(id));
        }
        let mut response = (status, Value::Object(body).to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY) {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"settled\""));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
