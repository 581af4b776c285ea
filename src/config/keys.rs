//! Loads the secrets that keys are made with. Start is refused without the active one; a missing old one is a warning.

use secrecy::{ExposeSecret, SecretString};

use super::{
    secret::{SecretError, SecretRef},
    settings::{KeySecret, Keys},
};

/// Least length of a secret, bytes.
pub const LEAST: usize = 32;

/// Secrets by `kid`, the active one always among them.
pub struct LoadedKeys {
    /// Name of the active one.
    pub active: String,
    /// `(kid, secret)`.
    pub secrets: Vec<(String, SecretString)>,
    /// About old ones that are not there, for the log.
    pub warnings: Vec<String>,
}

/// The active secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not listed.
    #[error("keys.active: no secret with kid `{0}` is listed under keys.secrets")]
    NotListed(String),
    /// It cannot be read.
    #[error("keys.secrets `{kid}`: {source}")]
    Unreadable {
        /// Its name.
        kid: String,
        /// Why.
        source: SecretError,
    },
    /// It is too short.
    #[error("keys.secrets `{kid}`: must be at least {LEAST} bytes, it has {length}")]
    Short {
        /// Its name.
        kid: String,
        /// What it has.
        length: usize,
    },
    /// Neither or both of `file` and `env`.
    #[error("keys.secrets `{0}`: give exactly one of file and env")]
    Place(String),
}

impl KeySecret {
    /// Where it is, if exactly one place is given.
    pub fn place(&self) -> Option<SecretRef> {
        match (&self.file, &self.env) {
            (Some(file), None) => Some(SecretRef::File(file.clone())),
            (None, Some(env)) => Some(SecretRef::Env(env.clone())),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it cannot be read or is too short.
    pub fn load(&self) -> Result<SecretString, KeyError> {
        let place = self.place().ok_or_else(|| KeyError::Place(self.kid.clone()))?;
        let secret = place.load().map_err(|source| KeyError::Unreadable { kid: self.kid.clone(), source })?;
        let length = secret.expose_secret().len();
        if length < LEAST {
            return Err(KeyError::Short { kid: self.kid.clone(), length });
        }
        Ok(secret)
    }
}

impl Keys {
    /// Reads all of them.
    ///
    /// # Errors
    /// Only about the active one.
    pub fn load(&self) -> Result<LoadedKeys, KeyError> {
        let mut loaded = LoadedKeys { active: self.active.clone(), secrets: Vec::new(), warnings: Vec::new() };
        for entry in &self.secrets {
            match entry.load() {
                Ok(secret) => loaded.secrets.push((entry.kid.clone(), secret)),
                Err(error) if entry.kid == self.active => return Err(error),
                Err(error) => loaded.warnings.push(format!("{error}; what was made with it cannot be derived again")),
            }
        }
        if loaded.secrets.iter().any(|(kid, _)| *kid == self.active) {
            Ok(loaded)
        } else {
            Err(KeyError::NotListed(self.active.clone()))
        }
    }
}
