//! Who calls. The principal, its kind and its tenant come from the token alone, never from a parameter.

use axum::extract::FromRequestParts;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{header, request::Parts};

use super::{
    AppState,
    problem::{Kind as ProblemKind, Problem},
};
use crate::store::tokens::{self, Kind, Presented, Principal};

/// The caller of a handler.
#[derive(Debug, Clone)]
pub struct Caller(pub Principal);

impl Caller {
    /// Lets only these kinds through.
    ///
    /// # Errors
    /// `forbidden`.
    pub fn must_be(&self, kinds: &[Kind]) -> Result<&Principal, Problem> {
        if kinds.contains(&self.0.kind) {
            Ok(&self.0)
        } else {
            Err(Problem::new(ProblemKind::Forbidden, format!("a {} token cannot do this", self.0.kind.as_str())))
        }
    }

    /// People: responders and admins. Producers can never decide.
    ///
    /// # Errors
    /// `forbidden`.
    pub fn must_be_person(&self) -> Result<&Principal, Problem> {
        self.must_be(&[Kind::Responder, Kind::Admin])
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let refuse = |reason: &str, words: &str| {
            state.metrics.auth_failure(reason);
            Problem::new(ProblemKind::Unauthenticated, words)
        };
        let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(refuse("missing", "send one Authorization header: Bearer stl_…"));
        };
        let presented = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .and_then(presented)
            .ok_or_else(|| refuse("malformed", "the Authorization header holds no token of this service"))?;
        let mut conn = state.pool.acquire().await?;
        match tokens::verify(&mut conn, &presented).await? {
            Some(principal) => Ok(Self(principal)),
            None => Err(refuse("unknown", "the token is not valid (any more)")),
        }
    }
}

/// A bearer token; or, for downstreams whose call-backs can carry nothing else, the password of Basic credentials.
fn presented((scheme, value): (&str, &str)) -> Option<Presented> {
    if scheme.eq_ignore_ascii_case("bearer") {
        return Presented::parse(value.trim());
    }
    let decoded = STANDARD.decode(value.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    // Browsers send Basic credentials by themselves; nothing that decides may come that way.
    Presented::parse(password).filter(|presented| presented.kind == Kind::Downstream)
}
