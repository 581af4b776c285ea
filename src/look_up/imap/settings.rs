//! `[destinations.look_up.imap]`: the audit mailbox. Parsed and checked by [`super::Imap::build`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::mailbox;
use crate::config::secret::SecretRef;

/// The section as written. Unknown members are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name or address of the server.
    pub host: String,
    /// Default 993 for `implicit`, 143 for `starttls` and `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Default `implicit`.
    #[serde(default)]
    pub tls: Tls,
    /// Who logs in.
    pub username: String,
    /// The password.
    pub password: SecretRef,
    /// How the password is given. Default `login`.
    #[serde(default)]
    pub auth: Auth,
    /// Default `INBOX`. As people see it, or in modified UTF-7 (RFC 3501 5.1.3).
    #[serde(default = "inbox")]
    pub mailbox: String,
    /// Who we must be there, as `username@host`. Without it absence is never believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The UIDVALIDITY that the mailbox must have. Another one says that it was made anew, and what it held may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid_validity: Option<u32>,
    /// Most messages that are read for one question. A window that holds more cannot be judged.
    #[serde(default = "twenty_thousand")]
    pub max_messages: u32,
    /// How far the server's clock may differ from ours, where the window begins.
    #[serde(default = "one_hour", with = "humantime_serde")]
    pub slack: Duration,
}

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// TLS from the first byte (RFC 8314).
    #[default]
    Implicit,
    /// Upgraded by STARTTLS before anything else is said; a server that refuses is not logged in to.
    Starttls,
    /// Clear text, password included. Only on the same machine or network.
    None,
}

/// How the password is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// The command LOGIN.
    #[default]
    Login,
    /// AUTHENTICATE PLAIN (RFC 4616): for servers that have LOGIN switched off, and for names that are not ASCII.
    Plain,
}

fn inbox() -> String {
    "INBOX".to_owned()
}
fn twenty_thousand() -> u32 {
    20_000
}
fn one_hour() -> Duration {
    Duration::from_secs(3600)
}

impl Settings {
    /// The port in force.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.tls {
            Tls::Implicit => 993,
            Tls::Starttls | Tls::None => 143,
        })
    }

    /// Who we are after LOGIN.
    pub fn identity(&self) -> String {
        format!("{}@{}", self.username, self.host)
    }

    /// What serde cannot see: the member and the rule.
    ///
    /// # Errors
    /// Where a member breaks its rule.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let odd = |text: &str| text.is_empty() || text.chars().any(char::is_control);
        if odd(&self.host) || self.host.contains(char::is_whitespace) {
            return Err(("host", "must name a host"));
        }
        if odd(&self.username) {
            return Err(("username", "must not be empty or hold control characters"));
        }
        if self.auth == Auth::Login && !self.username.is_ascii() {
            return Err(("username", "must be ASCII for auth = \"login\"; use \"plain\""));
        }
        mailbox::on_the_wire(&self.mailbox).map_err(|rule| ("mailbox", rule))?;
        if self.uid_validity == Some(0) {
            return Err(("uid_validity", "must be at least 1"));
        }
        if self.max_messages == 0 || self.max_messages > 1_000_000 {
            return Err(("max_messages", "must lie between 1 and 1000000"));
        }
        Ok(())
    }
}
