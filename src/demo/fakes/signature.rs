//! The receiver's side of Standard Webhooks v1: `HMAC-SHA256(secret, "<id>.<timestamp>.<body>")`.
//!
//! Written from the specification and its test vectors, apart from the sender's code.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::http::Request;

/// Why a signature was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSignature {
    /// webhook-id, webhook-timestamp or webhook-signature is missing.
    #[error("a signature header is missing")]
    Missing,
    /// No number, or further than five minutes from our clock.
    #[error("webhook-timestamp is not within five minutes")]
    Timestamp,
    /// None of the signatures fits one of the secrets.
    #[error("no signature matches")]
    NoMatch,
}

/// Decodes `whsec_…`; the key is the decoded bytes, not the text.
pub fn decode_secret(secret: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

/// Checks a request against any of several secrets, as a receiver does during a rotation.
///
/// # Errors
/// [`BadSignature`] says what is wrong.
pub fn check(request: &Request, secrets: &[Vec<u8>], unix_now: i64) -> Result<(), BadSignature> {
    let field = |name| request.header(name).ok_or(BadSignature::Missing);
    let (id, timestamp, signatures) = (field("webhook-id")?, field("webhook-timestamp")?, field("webhook-signature")?);
    let at: i64 = timestamp.parse().map_err(|_| BadSignature::Timestamp)?;
    if (unix_now - at).abs() > 300 {
        return Err(BadSignature::Timestamp);
    }
    let fits = signatures
        .split(' ')
        .filter_map(|one| one.strip_prefix("v1,"))
        .filter_map(|one| STANDARD.decode(one).ok())
        .any(|given| secrets.iter().any(|secret| matches(secret, id, timestamp, &request.body, &given)));
    if fits { Ok(()) } else { Err(BadSignature::NoMatch) }
}

fn matches(secret: &[u8], id: &str, timestamp: &str, body: &[u8], given: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    mac.verify_slice(given).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_specification_pass_and_a_changed_byte_does_not() {
        let secret = decode_secret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap_or_default();
        let mut headers = http::HeaderMap::new();
        headers.insert("webhook-id", http::HeaderValue::from_static("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk"));
        headers.insert("webhook-timestamp", http::HeaderValue::from_static("1649367553"));
        let signature = "v1,AAAA v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=";
        headers.insert("webhook-signature", http::HeaderValue::from_static(signature));
        let body = r#"{"email":"test@example.com","username":"test_user"}"#;
        let mut request =
            Request { method: "POST".into(), path: "/hook".into(), query: Vec::new(), headers, body: body.into() };
        assert_eq!(check(&request, std::slice::from_ref(&secret), 1_649_367_600), Ok(()));
        assert_eq!(check(&request, std::slice::from_ref(&secret), 1_649_368_600), Err(BadSignature::Timestamp));
        request.body = "{}".into();
        assert_eq!(check(&request, &[secret], 1_649_367_600), Err(BadSignature::NoMatch));
    }
}
