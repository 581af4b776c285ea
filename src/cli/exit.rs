//! Exit codes. They are documented in the README and never change meaning.

use std::process::ExitCode;

use crate::config::{BuildError, ConfigErrors, keys::KeyError, secret::SecretError};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done. For `enqueue`: the effect has happened or still may.
    Ok = 0,
    /// Something unexpected.
    Failed = 1,
    /// The command line is wrong (clap).
    Usage = 2,
    /// There is no such intent, token, destination.
    NotFound = 3,
    /// Other content under a known name. Do not repeat.
    Conflict = 4,
    /// The intent ended without effect, or the identity has expired. Do not repeat.
    Ended = 5,
    /// Somebody else acted meanwhile: look again before you decide.
    Stale = 6,
    /// The act does not fit how things stand.
    NotPossible = 7,
    /// A value breaks a rule; the field is named (sysexits `EX_DATAERR`).
    Invalid = 65,
    /// Postgres, the API or a needed program cannot be reached (`EX_UNAVAILABLE`).
    Unavailable = 69,
    /// Somebody else is in the middle of it; the same call later is right (`EX_TEMPFAIL`).
    TryLater = 75,
    /// Not allowed (`EX_NOPERM`).
    Denied = 77,
    /// The configuration is wrong (`EX_CONFIG`).
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with the exit code it means.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What happened, for stderr.
    pub error: anyhow::Error,
}

impl Failure {
    /// A failure in words.
    pub fn new(exit: Exit, words: impl Into<String>) -> Self {
        Self { exit, error: anyhow::anyhow!(words.into()) }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: anyhow::Error = error.into();
        let config = error.chain().any(|cause| {
            cause.is::<ConfigErrors>()
                || cause.is::<SecretError>()
                || cause.is::<KeyError>()
                || cause.is::<BuildError>()
        });
        let exit = if config {
            Exit::Config
        } else {
            error.chain().find_map(|cause| cause.downcast_ref::<sqlx::Error>()).map_or(Exit::Failed, of_database)
        };
        if lacks_ledger(&error) {
            return Self {
                exit,
                error: error.context("the database holds no ledger of this version; run `settled migrate`"),
            };
        }
        Self { exit, error }
    }
}

fn of_database(error: &sqlx::Error) -> Exit {
    if let Some(database) = error.as_database_error() {
        return match database.code().as_deref() {
            Some("42501" | "28P01" | "28000") => Exit::Denied,
            Some("57P03" | "57P01" | "3D000") => Exit::Unavailable,
            Some(_) | None => Exit::Failed,
        };
    }
    if matches!(error, sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_)) {
        Exit::Unavailable
    } else {
        Exit::Failed
    }
}

/// The schema, or a table or function of it, is not there.
fn lacks_ledger(error: &anyhow::Error) -> bool {
    error.chain().find_map(|cause| cause.downcast_ref::<sqlx::Error>()).is_some_and(|error| {
        let code = error.as_database_error().and_then(|e| e.code());
        matches!(code.as_deref(), Some("42P01" | "42883" | "3F000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_that_cannot_be_built_is_a_wrong_configuration() {
        let error = anyhow::Error::from(BuildError::new("look_up.http.pages", "must be there"));
        assert_eq!(Failure::from(error.context("destination erp")).exit, Exit::Config);
        assert_eq!(Failure::from(anyhow::anyhow!("something else")).exit, Exit::Failed);
    }
}
