//! `[destinations.smtp]`: the relay, who we are to it, and what a mail carries. Parsed by [`super::Smtp::build`], checked before use.

use std::time::Duration;

use lettre::Address;
use serde::{Deserialize, Serialize};

use crate::config::secret::SecretRef;

/// The section as written. Unknown members are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Name or address of the relay.
    pub host: String,
    /// Default 587 for `starttls`, 465 for `implicit`, 25 for `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Default `starttls`, and then required.
    #[serde(default)]
    pub tls: Tls,
    /// What EHLO says; default the machine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hello_name: Option<String>,
    /// Account at the relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Its password; both or neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretRef>,
    /// Envelope and header sender. The domain is written as A-label.
    pub from: String,
    /// Its display name, where the payload gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_name: Option<String>,
    /// Domain of Message-ID; default that of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id_domain: Option<String>,
    /// Where a mail must show its reference beside the header `X-Settled-Reference`.
    #[serde(default)]
    pub reference_in: ReferenceIn,
    /// What a relay that offers DSN is asked to report (RFC 3461); empty asks for nothing.
    #[serde(default = "failure_and_delay")]
    pub notify: Vec<Notify>,
    /// How long a connection waits for the next mail after its last one was taken; zero: each mail has its own.
    #[serde(default = "five_seconds", with = "humantime_serde")]
    pub keep_for: Duration,
    /// Mails over one connection at most.
    #[serde(default = "a_hundred")]
    pub keep_uses: u32,
}

fn five_seconds() -> Duration {
    Duration::from_secs(5)
}

fn a_hundred() -> u32 {
    100
}

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Upgraded by STARTTLS (RFC 3207) before anything else is said; a relay that does not offer it gets no mail.
    #[default]
    Starttls,
    /// TLS from the first byte (RFC 8314).
    Implicit,
    /// Clear text, password included. Only for a relay on the same machine or network.
    None,
}

/// Where the reference must stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceIn {
    /// The header alone.
    #[default]
    Headers,
    /// A subject that does not name the reference is refused.
    Subject,
}

/// A condition of `NOTIFY=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notify {
    /// It was delivered.
    Success,
    /// It could not be delivered.
    Failure,
    /// It takes longer.
    Delay,
}

impl Notify {
    /// The word of RFC 3461 section 4.1.
    pub fn word(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
            Self::Delay => "DELAY",
        }
    }
}

fn failure_and_delay() -> Vec<Notify> {
    vec![Notify::Failure, Notify::Delay]
}

impl Settings {
    /// The port in force.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.tls {
            Tls::Starttls => 587,
            Tls::Implicit => 465,
            Tls::None => 25,
        })
    }

    /// The sender, parsed.
    ///
    /// # Errors
    /// The field and the rule, when it is no address with an ASCII domain.
    pub fn sender(&self) -> Result<Address, String> {
        let from: Address = self.from.parse().map_err(|_| "from: must be one mail address".to_owned())?;
        if from.domain().is_ascii() { Ok(from) } else { Err("from: the domain must be given as A-label".to_owned()) }
    }

    /// The domain of Message-ID.
    pub fn id_domain<'a>(&'a self, sender: &'a Address) -> &'a str {
        self.message_id_domain.as_deref().unwrap_or_else(|| sender.domain())
    }

    /// What serde cannot see.
    ///
    /// # Errors
    /// The field and the rule.
    pub fn check(&self) -> Result<(), String> {
        let sender = self.sender()?;
        if self.host.is_empty() || self.host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("host: must name a host".to_owned());
        }
        if self.username.is_some() != self.password.is_some() {
            return Err("username: must be given together with password".to_owned());
        }
        if self.username.as_deref().is_some_and(|name| name.is_empty() || name.contains(['\0', '\r', '\n'])) {
            return Err("username: must not be empty or hold NUL, CR or LF".to_owned());
        }
        if self.from_name.as_deref().is_some_and(|name| name.chars().any(char::is_control)) {
            return Err("from_name: must not hold control characters".to_owned());
        }
        if !is_host_name(self.id_domain(&sender)) {
            return Err("message_id_domain: must be a host name of letters, digits, dots and hyphens".to_owned());
        }
        if self.keep_for > Duration::from_secs(300) {
            return Err("keep_for: must be at most 5m; relays close connections that wait longer".to_owned());
        }
        if self.keep_uses == 0 {
            return Err("keep_uses: must be at least 1".to_owned());
        }
        if self.hello_name.as_deref().is_some_and(|name| !is_host_name(name) && !is_address_literal(name)) {
            return Err("hello_name: must be a host name or an address literal such as [192.0.2.1]".to_owned());
        }
        Ok(())
    }
}

fn is_host_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
}

fn is_address_literal(name: &str) -> bool {
    name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|inner| {
        inner
            .strip_prefix("IPv6:")
            .map_or_else(|| inner.parse::<std::net::Ipv4Addr>().is_ok(), |v6| v6.parse::<std::net::Ipv6Addr>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;

    fn minimal() -> serde_json::Value {
        serde_json::json!({"host": "relay.test", "from": "billing@example.test"})
    }

    #[test]
    fn the_smallest_section_asks_for_starttls_and_derives_the_rest() {
        let settings: Settings = serde_json::from_value(minimal()).unwrap();
        assert_eq!(settings.check(), Ok(()));
        assert_eq!((settings.tls, settings.port()), (Tls::Starttls, 587));
        assert_eq!(settings.id_domain(&settings.sender().unwrap()), "example.test");
        assert_eq!(settings.notify, [Notify::Failure, Notify::Delay]);
    }

    #[test]
    fn a_misspelt_member_is_refused() {
        let mut section = minimal();
        section["starttls"] = true.into();
        assert!(serde_json::from_value::<Settings>(section).is_err());
    }

    #[test]
    fn what_could_break_the_dialogue_is_refused_by_name() {
        for (member, value) in [
            ("host", "a b"),
            ("from", "nobody"),
            ("from", "b@exämple.test"),
            ("from_name", "X\r\nBcc: y@example.test"),
            ("message_id_domain", "bad>domain"),
            ("hello_name", "me\r\nMAIL"),
        ] {
            let mut section = minimal();
            section[member] = value.into();
            let settings: Settings = serde_json::from_value(section).unwrap();
            let said = settings.check().unwrap_err();
            assert!(said.starts_with(member), "{said}");
        }
    }
}
