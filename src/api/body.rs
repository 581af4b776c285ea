//! Reading request bodies: bounded in bytes and time, JSON only, no member twice at any depth.

use std::{collections::HashSet, fmt, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};

use super::problem::{Kind, Problem};

/// Payloads may have 256 KiB; the rest of the envelope has some room beside it.
const MOST_BYTES: usize = 320 * 1024;
const MOST_TIME: Duration = Duration::from_secs(15);

/// Reads the whole body of a call.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    read_up_to(MOST_BYTES, headers, body).await
}

/// Reads the whole body, of at most so many bytes.
pub(super) async fn read_up_to(most: usize, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| value.split(';').next().unwrap_or(value).trim().to_ascii_lowercase())
        .is_some_and(|media| media == "application/json");
    if !json {
        return Err(Problem::new(Kind::UnsupportedMediaType, "content-type must be application/json"));
    }
    collect_up_to(most, body).await
}

/// Reads the whole body, whatever it is.
pub(super) async fn collect(body: Body) -> Result<Bytes, Problem> {
    collect_up_to(MOST_BYTES, body).await
}

async fn collect_up_to(most: usize, body: Body) -> Result<Bytes, Problem> {
    let collected = tokio::time::timeout(MOST_TIME, Limited::new(body, most).collect())
        .await
        .map_err(|_| Problem::new(Kind::TooSlow, format!("the body must arrive within {} s", MOST_TIME.as_secs())))?;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            Problem::new(Kind::TooLarge, format!("the body must not have more than {most} bytes"))
        } else {
            Problem::new(Kind::Malformed, "the body ended early")
        }
    })
}

/// Parses an envelope; the member that does not fit is named.
pub(super) fn parse<'a, T: Deserialize<'a>>(bytes: &'a Bytes) -> Result<T, Problem> {
    within(std::str::from_utf8(bytes).map_err(|error| Problem::new(Kind::Malformed, error.to_string()))?)
}

/// Parses a part of an envelope, as [`parse`] does the whole.
pub(super) fn within<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let parsed = serde_path_to_error::deserialize::<_, T>(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let words = error.into_inner().to_string();
        if path == "." {
            Problem::new(Kind::Malformed, words)
        } else {
            Problem::field(Kind::Malformed, pointer(&path), words)
        }
    })?;
    reader.end().map_err(|error| Problem::new(Kind::Malformed, error.to_string()))?;
    Ok(parsed)
}

/// `instructed_by.name` as `/instructed_by/name`.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// A point in time, or none. Without an offset it would mean another time at every desk, so it is refused in words.
pub(super) fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DateTime<Utc>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let at = DateTime::parse_from_rfc3339(&text).map_err(|_| {
        de::Error::custom("must be an RFC 3339 timestamp with an offset, such as 2026-12-01T09:00:00+01:00")
    })?;
    Ok(Some(at.to_utc()))
}

/// Refuses an object that has a member twice, at any depth.
pub(super) fn refuse_duplicates(text: &str, field: &str) -> Result<(), Problem> {
    let mut reader = serde_json::Deserializer::from_str(text);
    Walk.deserialize(&mut reader).map_err(|error| Problem::field(Kind::Malformed, field, error.to_string()))
}

struct Walk;

impl<'de> DeserializeSeed<'de> for Walk {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("json")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(de::Error::custom(format_args!("duplicate member `{name}`")));
            }
            seen.insert(name);
            members.next_value_seed(Self)?;
        }
        Ok(())
    }
}
