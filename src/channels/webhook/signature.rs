//! Signatures of Standard Webhooks 1.0 over `id.timestamp.body`, one for every secret that is valid at the time of the attempt:
//! HMAC-SHA-256 (tag `v1`) with `whsec_` secrets, Ed25519 (tag `v1a`) with `whsk_` keys.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::Ed25519KeyPair;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::config::{BuildError, access, secret::SecretRef};

/// Length of a secret in bytes, as the specification has it.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret as it stands in the settings: alone, or with the time in which it signs. While an old one is replaced by a new
/// one both sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SigningSecret {
    /// For ever.
    Always(SecretRef),
    /// From, until, or both.
    Within(Window),
}

/// `{ secret = { file = … }, not_before = …, not_after = … }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The secret.
    pub secret: SecretRef,
    /// It signs nothing before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<DateTime<Utc>>,
    /// It signs nothing from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<DateTime<Utc>>,
}

/// Keyed and ready; the secrets themselves are not kept.
#[derive(Clone, Default)]
pub struct Signers(Vec<Signer>);

#[derive(Clone)]
struct Signer {
    key: Key,
    not_before: Option<DateTime<Utc>>,
    not_after: Option<DateTime<Utc>>,
}

#[derive(Clone)]
enum Key {
    Hmac(Hmac<Sha256>),
    Ed25519(Arc<Ed25519KeyPair>),
}

/// No secret signs at this time, though there are some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no signing secret is valid now (not_before, not_after)")]
pub struct NoneValid;

impl Signers {
    /// Loads all secrets, in order.
    ///
    /// # Errors
    /// A secret that cannot be read, or is none: names the setting and the rule, never the secret.
    pub fn load(secrets: &[SigningSecret], field: &str) -> Result<Self, BuildError> {
        let mut all = Vec::with_capacity(secrets.len());
        for (i, secret) in secrets.iter().enumerate() {
            let field = format!("{field}[{i}]");
            let (secret, not_before, not_after) = match secret {
                SigningSecret::Always(secret) => (secret, None, None),
                SigningSecret::Within(window) => (&window.secret, window.not_before, window.not_after),
            };
            if not_before.zip(not_after).is_some_and(|(from, until)| until <= from) {
                return Err(BuildError::new(format!("{field}.not_after"), "must be later than not_before"));
            }
            let text = access::load(secret, &field)?;
            let key = Key::read(text.expose_secret()).map_err(|rule| BuildError::new(&field, rule))?;
            all.push(Signer { key, not_before, not_after });
        }
        Ok(Self(all))
    }

    /// The value of `webhook-signature`; `None` where there are no secrets. `timestamp` is Unix seconds of the attempt.
    ///
    /// # Errors
    /// Where there are secrets and none is valid at that time: an unsigned message must not stand in for a signed one.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Result<Option<String>, NoneValid> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let at =
            i64::try_from(timestamp).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0)).ok_or(NoneValid)?;
        let valid = |signer: &&Signer| {
            signer.not_before.is_none_or(|from| from <= at) && signer.not_after.is_none_or(|until| at < until)
        };
        let content = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        let all: Vec<String> = self.0.iter().filter(valid).map(|signer| signer.key.sign(&content)).collect();
        if all.is_empty() { Err(NoneValid) } else { Ok(Some(all.join(" "))) }
    }
}

impl Key {
    fn read(secret: &str) -> Result<Self, String> {
        if let Some(private) = secret.strip_prefix("whsk_") {
            return ed25519(private).map(|pair| Self::Ed25519(Arc::new(pair)));
        }
        let key = key(secret)?;
        Hmac::new_from_slice(&key).map(Self::Hmac).map_err(|error| error.to_string())
    }

    fn sign(&self, content: &[u8]) -> String {
        match self {
            Self::Hmac(keyed) => {
                let mut mac = keyed.clone();
                mac.update(content);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Self::Ed25519(pair) => format!("v1a,{}", STANDARD.encode(pair.sign(content))),
        }
    }
}

/// The seed alone (32 bytes), or followed by its public key (64 bytes), which must belong to it.
fn ed25519(base64: &str) -> Result<Ed25519KeyPair, String> {
    let bytes = STANDARD.decode(base64).map_err(|_| "must be whsk_ and base64 with padding".to_owned())?;
    let not_a_key = |_| "must be a valid ed25519 key whose halves belong together".to_owned();
    match bytes.split_at_checked(32) {
        Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed).map_err(not_a_key),
        Some((seed, public)) if public.len() == 32 => {
            Ed25519KeyPair::from_seed_and_public_key(seed, public).map_err(not_a_key)
        }
        Some(_) | None => Err(format!("must hold an ed25519 key of 32 or 64 bytes, not {}", bytes.len())),
    }
}

/// The bytes to sign with. Base64 is read strictly, with or without `whsec_`; text only behind `raw:`.
fn key(secret: &str) -> Result<Vec<u8>, String> {
    if secret.starts_with("v1,") || secret.starts_with("v1a,") {
        return Err("must not have the signature's version in front: cut off \"v1,\"".to_owned());
    }
    if secret.starts_with("whpk_") {
        return Err("must be the private key (whsk_…); the public one is for the receiver".to_owned());
    }
    let key = match secret.strip_prefix("raw:") {
        Some(text) => text.as_bytes().to_vec(),
        None => STANDARD
            .decode(secret.strip_prefix("whsec_").unwrap_or(secret))
            .map_err(|_| "must be whsec_ and base64 with padding, or raw: and text".to_owned())?,
    };
    if !BYTES.contains(&key.len()) {
        return Err(format!("must hold {} to {} bytes, not {}", BYTES.start(), BYTES.end(), key.len()));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;

    fn signers(secrets: &[&str]) -> Signers {
        let signer = |secret: &&str| Signer { key: Key::read(secret).unwrap(), not_before: None, not_after: None };
        Signers(secrets.iter().map(signer).collect())
    }

    fn at(seconds: i64) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(seconds, 0)
    }

    #[test]
    fn the_vector_of_the_specification() {
        let signed = signers(&["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]).sign(
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            br#"{"email":"test@example.com","username":"test_user"}"#,
        );
        assert_eq!(signed.unwrap().as_deref(), Some("v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="));
    }

    #[test]
    fn the_vector_of_the_reference_library_has_a_space_in_its_body() {
        let signed = signers(&["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed.unwrap().as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn without_secrets_nothing_is_signed() {
        assert_eq!(Signers::default().sign("id", 1, b"{}"), Ok(None));
    }

    #[test]
    fn case_069_a_version_in_front_is_refused_with_a_hint() {
        let rule = key("v1,whsec_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx").unwrap_err();
        assert!(rule.contains("cut off \"v1,\""), "{rule}");
    }

    #[test]
    fn case_070_bad_base64_and_short_keys_are_refused() {
        for bad in [
            "whsec_",
            "whsec_!!!!",
            "whsec_YQ",
            "whsec_YQ==",
            "whsec_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDA_",
            "whsec_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx\n",
            "whsec_ c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx",
            "raw:short",
            "raw:",
            "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
            "whsk_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx",
            "whsk_",
            "whsk_!!!!",
        ] {
            assert!(Key::read(bad).is_err(), "{bad}");
        }
        let long = format!("raw:{}", "x".repeat(65));
        key(&long).unwrap_err();
    }

    #[test]
    fn case_071_with_and_without_prefix_is_one_key_and_text_only_behind_raw() {
        let text = "c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx";
        assert_eq!(key(text).unwrap(), b"settled-demo-secret-0001");
        assert_eq!(key(&format!("whsec_{text}")).unwrap(), key(text).unwrap());
        assert_eq!(key("raw:settled-demo-secret-0001").unwrap(), key(text).unwrap());
        // Computed by another implementation (Python's hmac).
        let signed = signers(&[text]).sign("key1", 1_700_000_000, b"{}");
        assert_eq!(signed.unwrap().as_deref(), Some("v1,skXpAI4BViGB5EcwuQ3ffAMHA8XQf86KKMnxeI7genE="));
    }

    #[test]
    fn case_073_two_secrets_give_two_signatures_in_order() {
        let (old, new) = ("whsec_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx", "raw:another secret of length 24+");
        let both = signers(&[old, new]).sign("k", 5, b"{}").unwrap().unwrap();
        let alone = [old, new].map(|one| signers(&[one]).sign("k", 5, b"{}").unwrap().unwrap());
        assert_eq!(both, alone.join(" "));
        assert_ne!(alone[0], alone[1]);
    }

    /// Seed and public key of RFC 8032 section 7.1, test 1. The signature was made by OpenSSL.
    const SEED: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
    const PAIR: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2DXWpgBgrEKt9VL/tPJZAc6DuFy89qmIyWvAhpo9wdRGg==";
    const MADE_BY_OPENSSL: &str =
        "jfp5j4J3Buv9EPOcc9Bqo8rJqAO1H6lrRl0WZQdzVZI6IttNPT8HSLyPvUvY54dJJt2BQGA01di1ePvigCwlCw==";

    #[test]
    fn an_ed25519_key_signs_as_another_implementation_does() {
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        for key in [SEED, PAIR] {
            let signed = signers(&[key]).sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
            assert_eq!(signed.unwrap().unwrap(), format!("v1a,{MADE_BY_OPENSSL}"));
        }
        let both = signers(&["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", PAIR]);
        let signed = both.sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body).unwrap().unwrap();
        assert_eq!(signed, format!("v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw= v1a,{MADE_BY_OPENSSL}"));
    }

    #[test]
    fn a_pair_whose_halves_do_not_belong_together_is_refused() {
        let broken = PAIR.replace("RGg==", "RGw==");
        assert!(Key::read(&broken).is_err());
    }

    #[test]
    fn a_secret_signs_from_its_beginning_until_before_its_end() {
        let (old, new) = ("raw:an old secret of length 24+", "raw:a new secret of length 24 +");
        let signer = |secret, not_before, not_after| Signer { key: Key::read(secret).unwrap(), not_before, not_after };
        let rotating = Signers(vec![signer(old, None, at(200)), signer(new, at(100), None)]);
        let alone = |secret, now| signers(&[secret]).sign("k", now, b"{}").unwrap().unwrap();
        let signed = |now| rotating.sign("k", now, b"{}").unwrap().unwrap();
        assert_eq!(signed(99), alone(old, 99));
        for now in [100, 199] {
            assert_eq!(signed(now), format!("{} {}", alone(old, now), alone(new, now)));
        }
        assert_eq!(signed(200), alone(new, 200));
        let gone = Signers(vec![signer(old, None, at(200))]);
        assert_eq!(gone.sign("k", 200, b"{}"), Err(NoneValid));
    }
}
