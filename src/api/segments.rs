//! The variable segments of a path. One that is not UTF-8 is a problem like any other.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{Kind, Problem};

/// What stands where the route has a name in braces.
pub(super) struct Segments<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segments = Path::<T>::from_request_parts(parts, state).await;
        segments.map(|Path(value)| Self(value)).map_err(|error| Problem::new(Kind::Invalid, error.body_text()))
    }
}
