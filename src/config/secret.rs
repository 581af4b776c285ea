//! References to secrets. A value never stands in a configuration file, a definition or the database.

use std::path::PathBuf;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Where a secret comes from: `{ file = "/run/…" }` or `{ env = "NAME" }`, never both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretRef {
    /// A file; one trailing newline is cut off.
    File(PathBuf),
    /// An environment variable.
    Env(String),
}

/// A secret that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file could not be read.
    #[error("secret file {path}: {source}")]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The variable is not set.
    #[error("environment variable {0} holds no secret")]
    Env(String),
    /// Nothing in it.
    #[error("secret {0} is empty")]
    Empty(String),
}

impl SecretRef {
    /// Reads the secret.
    ///
    /// # Errors
    /// When the file or variable is missing, unreadable or empty.
    pub fn load(&self) -> Result<SecretString, SecretError> {
        let (name, mut value) = match self {
            Self::File(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|source| SecretError::File { path: path.clone(), source })?;
                (path.display().to_string(), text)
            }
            Self::Env(name) => (name.clone(), std::env::var(name).map_err(|_| SecretError::Env(name.clone()))?),
        };
        if value.ends_with('\n') {
            value.pop();
            if value.ends_with('\r') {
                value.pop();
            }
        }
        if value.is_empty() {
            return Err(SecretError::Empty(name));
        }
        Ok(SecretString::from(value))
    }
}
