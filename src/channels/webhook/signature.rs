//! Signatures of Standard Webhooks 1.0: HMAC-SHA-256 over `id.timestamp.body`, tag `v1`, one for every secret.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::ExposeSecret;
use sha2::Sha256;

use crate::config::{BuildError, access, secret::SecretRef};

/// Length of a secret in bytes, as the specification has it.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Keyed and ready; the secrets themselves are not kept.
#[derive(Clone, Default)]
pub struct Signers(Vec<Hmac<Sha256>>);

impl Signers {
    /// Loads all secrets, in order.
    ///
    /// # Errors
    /// A secret that cannot be read, or is none: names the setting and the rule, never the secret.
    pub fn load(secrets: &[SecretRef], field: &str) -> Result<Self, BuildError> {
        let mut all = Vec::with_capacity(secrets.len());
        for (i, secret) in secrets.iter().enumerate() {
            let field = format!("{field}[{i}]");
            let text = access::load(secret, &field)?;
            let key = key(text.expose_secret()).map_err(|rule| BuildError::new(&field, rule))?;
            all.push(Hmac::new_from_slice(&key).map_err(|e| BuildError::new(&field, e.to_string()))?);
        }
        Ok(Self(all))
    }

    /// The value of `webhook-signature`, or `None` without secrets. `timestamp` is Unix seconds of the attempt.
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Option<String> {
        let one = |signer: &Hmac<Sha256>| {
            let mut mac = signer.clone();
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        let all: Vec<String> = self.0.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join(" "))
    }
}

/// The bytes to sign with. Base64 is read strictly, with or without `whsec_`; text only behind `raw:`.
fn key(secret: &str) -> Result<Vec<u8>, String> {
    if secret.starts_with("v1,") || secret.starts_with("v1a,") {
        return Err("must not have the signature's version in front: cut off \"v1,\"".to_owned());
    }
    if secret.starts_with("whsk_") || secret.starts_with("whpk_") {
        return Err("must be a symmetric secret (whsec_…), not an ed25519 key".to_owned());
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
        Signers(secrets.iter().map(|s| Hmac::new_from_slice(&key(s).unwrap()).unwrap()).collect())
    }

    #[test]
    fn the_vector_of_the_specification() {
        let signed = signers(&["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]).sign(
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            br#"{"email":"test@example.com","username":"test_user"}"#,
        );
        assert_eq!(signed.as_deref(), Some("v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="));
    }

    #[test]
    fn the_vector_of_the_reference_library_has_a_space_in_its_body() {
        let signed = signers(&["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn without_secrets_nothing_is_signed() {
        assert_eq!(Signers::default().sign("id", 1, b"{}"), None);
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
            "whsk_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx",
        ] {
            key(bad).unwrap_err();
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
        assert_eq!(signed.as_deref(), Some("v1,skXpAI4BViGB5EcwuQ3ffAMHA8XQf86KKMnxeI7genE="));
    }

    #[test]
    fn case_073_two_secrets_give_two_signatures_in_order() {
        let (old, new) = ("whsec_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx", "raw:another secret of length 24+");
        let both = signers(&[old, new]).sign("k", 5, b"{}").unwrap();
        let alone = [signers(&[old]).sign("k", 5, b"{}").unwrap(), signers(&[new]).sign("k", 5, b"{}").unwrap()];
        assert_eq!(both, alone.join(" "));
        assert_ne!(alone[0], alone[1]);
    }
}
