//! Keys: what leaves the building in place of an identity, and what the downstream is asked for.
//!
//! A key is derived, not drawn, so that after a rewound database the same call has the same key again. Admission and
//! the dispatcher derive; everyone else reads what was pinned. Uniqueness never rests on a key, so secrets may rotate.

use std::{collections::BTreeMap, fmt};

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::intent::Identity;

/// Names the purpose and version of the frame.
const LABEL: &str = "settled/key/v1";

/// Their number goes into the frame, so that a later frame with one field more never equals this one.
const FIELDS: u32 = 7;

/// Shortest secret, bytes: the width of the hash.
pub const SECRET_MIN: usize = 32;

/// What may be wrong with a ring or a call to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The active id names no secret.
    #[error("use key secret {kid}: no secret of that id is configured")]
    UnknownKid {
        /// The id.
        kid: String,
    },
    /// Too short to be a key.
    #[error("use key secret {kid}: it must have at least {SECRET_MIN} bytes, and has {len}")]
    ShortSecret {
        /// The id.
        kid: String,
        /// Its bytes.
        len: usize,
    },
    /// Ids go into rows and output.
    #[error("use key secret {kid:?}: an id is 1 to 32 of [A-Za-z0-9._-]")]
    BadKid {
        /// The id.
        kid: String,
    },
    /// A field does not fit its length prefix.
    #[error("derive a key: {field} is longer than 4 GiB")]
    TooLong {
        /// Which.
        field: &'static str,
    },
}

/// How a destination wants its keys written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spelling {
    /// 32 lower-case hex digits.
    #[default]
    Hex32,
    /// The same digits as 8-4-4-4-12. Version and variant bits are not set: it has the form of a UUID and all 128 bits.
    Uuid,
}

impl Spelling {
    /// Length in ASCII characters; a destination's own limit is compared with it when it is loaded.
    pub fn length(self) -> usize {
        match self {
            Self::Hex32 => 32,
            Self::Uuid => 36,
        }
    }

    /// Whether a text could be a key in this spelling: exact length and alphabet.
    pub fn fits(self, text: &str) -> bool {
        let dash = |at: usize| self == Self::Uuid && matches!(at, 8 | 13 | 18 | 23);
        text.len() == self.length()
            && text.bytes().enumerate().all(|(at, byte)| {
                if dash(at) { byte == b'-' } else { byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) }
            })
    }

    fn spell(self, bits: &[u8]) -> String {
        let mut text = String::with_capacity(self.length());
        for (at, byte) in bits.iter().enumerate() {
            if self == Self::Uuid && matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text
    }
}

/// A derived key and the secret that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// As it leaves the building.
    pub text: String,
    /// Id of the secret; pinned beside the key.
    pub kid: String,
}

/// The server's secrets. One is active; the others still derive what they once derived.
pub struct Keyring {
    active: String,
    secrets: BTreeMap<String, SecretSlice<u8>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("active", &self.active).field("kids", &self.secrets.keys()).finish()
    }
}

impl Keyring {
    /// A ring with its active secret.
    ///
    /// # Errors
    /// The active id has no secret, a secret is shorter than [`SECRET_MIN`], an id has other characters.
    pub fn new(
        active: impl Into<String>,
        secrets: impl IntoIterator<Item = (String, SecretSlice<u8>)>,
    ) -> Result<Self, KeyError> {
        let ring = Self { active: active.into(), secrets: secrets.into_iter().collect() };
        for (kid, secret) in &ring.secrets {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            if kid.is_empty() || kid.len() > 32 || !kid.bytes().all(plain) {
                return Err(KeyError::BadKid { kid: kid.clone() });
            }
            let len = secret.expose_secret().len();
            if len < SECRET_MIN {
                return Err(KeyError::ShortSecret { kid: kid.clone(), len });
            }
        }
        if !ring.secrets.contains_key(&ring.active) {
            return Err(KeyError::UnknownKid { kid: ring.active });
        }
        Ok(ring)
    }

    /// Id of the secret that new keys are made with.
    pub fn active(&self) -> &str {
        &self.active
    }

    /// All ids still held; after a rewind a question is put under each of them.
    pub fn kids(&self) -> impl Iterator<Item = &str> {
        self.secrets.keys().map(String::as_str)
    }

    /// The key of an identity in an effect scope; `kid` `None` = the active secret.
    ///
    /// # Errors
    /// No secret of that id, or a field of more than 4 GiB.
    pub fn derive(
        &self,
        kid: Option<&str>,
        region: &str,
        identity: &Identity,
        effect_scope: &str,
        spelling: Spelling,
    ) -> Result<Key, KeyError> {
        let kid = kid.unwrap_or(&self.active);
        let unknown = || KeyError::UnknownKid { kid: kid.to_owned() };
        let secret = self.secrets.get(kid).ok_or_else(unknown)?;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret()).map_err(|_| unknown())?;
        mac.update(&frame(region, identity, effect_scope)?);
        let digest = mac.finalize().into_bytes();
        Ok(Key { text: spelling.spell(&digest[..16]), kid: kid.to_owned() })
    }
}

/// Injective for any bytes: the label, the number of fields, and each field behind its length (big-endian u32).
fn frame(region: &str, identity: &Identity, effect_scope: &str) -> Result<Vec<u8>, KeyError> {
    let (step, revision) = (identity.step.to_string(), identity.revision.to_string());
    let fields: [(&'static str, &str); FIELDS as usize] = [
        ("region", region),
        ("tenant", &identity.tenant),
        ("effect scope", effect_scope),
        ("run_id", &identity.run_id),
        ("step", &step),
        ("slot", &identity.slot),
        ("revision", &revision),
    ];
    let mut bytes = Vec::with_capacity(256);
    put(&mut bytes, "label", LABEL)?;
    bytes.extend_from_slice(&FIELDS.to_be_bytes());
    for (field, text) in fields {
        put(&mut bytes, field, text)?;
    }
    Ok(bytes)
}

fn put(bytes: &mut Vec<u8>, field: &'static str, text: &str) -> Result<(), KeyError> {
    let length = u32::try_from(text.len()).map_err(|_| KeyError::TooLong { field })?;
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test that cannot go on must stop loudly")]
mod tests;
