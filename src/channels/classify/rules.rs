//! What a destination declares about its replies.

use std::collections::BTreeMap;

use http::{HeaderName, header};
use serde::{Deserialize, Serialize};

use crate::{channels::wire::http1::Reply, config::BuildError};

/// Settings of a destination that is spoken to by HTTP. Everything left out follows the table of [`super::judge`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplyRules {
    /// When a reply means Sent; without it any 2xx, but HTML in answer to JSON is Ambiguous. A 2xx that does not match is
    /// Ambiguous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_when: Option<Condition>,
    /// When a reply means Refused, also inside a 2xx ("ok": false).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_when: Option<Condition>,
    /// Statuses that say "I have this one already".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duplicate_reply: Vec<u16>,
    /// The downstream compares *our key*, so such a status is about this intent and nothing else.
    pub compares_key: bool,
    /// JSON pointer to the downstream's name for the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Statuses that mean something else here, each with its reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<u16, Override>,
    /// What a number in Retry-After counts: `seconds` (RFC 9110) or `milliseconds`, where a downstream is known for it.
    #[serde(skip_serializing_if = "Unit::is_seconds")]
    pub retry_after: Unit,
    /// A request that stayed incomplete made no effect. False for a downstream that acts on what it has read so far.
    pub incomplete_is_not_sent: bool,
}

impl Default for ReplyRules {
    fn default() -> Self {
        Self {
            sent_when: None,
            refused_when: None,
            duplicate_reply: Vec::new(),
            compares_key: false,
            provider_id: None,
            overrides: BTreeMap::new(),
            retry_after: Unit::Seconds,
            incomplete_is_not_sent: true,
        }
    }
}

/// What a number in Retry-After counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// As RFC 9110 has it.
    #[default]
    Seconds,
    /// Rounded up to whole seconds.
    Milliseconds,
}

impl Unit {
    fn is_seconds(&self) -> bool {
        *self == Self::Seconds
    }
}

/// Everything that is named must hold. Names nothing: never holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Condition {
    /// One of these; any 2xx where it is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<u16>,
    /// Something in a JSON body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<JsonCondition>,
    /// A header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderCondition>,
    /// The media type, without parameters, such as `application/json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// A value in the body.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonCondition {
    /// RFC 6901 pointer.
    pub pointer: String,
    /// It is this value; left out: it is there and not null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<serde_json::Value>,
    /// It is one of these values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<serde_json::Value>,
}

/// A header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderCondition {
    /// Its name.
    pub name: String,
    /// Its value, exactly; left out: it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
}

/// Another meaning of a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// What it means here.
    pub outcome: OverrideOutcome,
    /// Why that is known.
    pub reason: String,
}

/// Meanings that may be declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideOutcome {
    /// The downstream has it.
    Sent,
    /// No, for good.
    Refused,
    /// Not now, whatever the message: the destination waits, as long as Retry-After says.
    Deferred,
    /// Not from us; the destination is parked.
    Parked,
    /// Proves nothing.
    Unknown,
}

impl Condition {
    /// Whether the reply matches. A body that cannot be read as JSON matches no JSON condition.
    pub fn holds(&self, reply: &Reply) -> bool {
        if *self == Self::default() {
            return false;
        }
        let status = if self.status.is_empty() {
            (200..=299).contains(&reply.status)
        } else {
            self.status.contains(&reply.status)
        };
        status
            && self.json.as_ref().is_none_or(|json| json.holds(reply))
            && self.header.as_ref().is_none_or(|header| header.holds(reply))
            && self.content_type.as_ref().is_none_or(|wanted| media_type(reply).eq_ignore_ascii_case(wanted))
    }

    fn check(&self, field: &str) -> Result<(), BuildError> {
        if *self == Self::default() {
            return Err(BuildError::new(field, "must name a status, json, header or content_type"));
        }
        statuses(self.status.iter(), &format!("{field}.status"))?;
        if let Some(json) = &self.json {
            pointer(&json.pointer, &format!("{field}.json.pointer"))?;
            if json.equals.is_some() && !json.one_of.is_empty() {
                return Err(BuildError::new(format!("{field}.json"), "must not have both equals and one_of"));
            }
        }
        if let Some(header) = &self.header {
            HeaderName::from_bytes(header.name.as_bytes()).map_err(|_invalid| {
                BuildError::new(format!("{field}.header.name"), "must be a header name (RFC 9110 token)")
            })?;
        }
        Ok(())
    }
}

impl JsonCondition {
    fn holds(&self, reply: &Reply) -> bool {
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&reply.body) else { return false };
        let Some(value) = json.pointer(&self.pointer) else { return false };
        match &self.equals {
            Some(wanted) => value == wanted,
            None if self.one_of.is_empty() => !value.is_null(),
            None => self.one_of.contains(value),
        }
    }
}

impl HeaderCondition {
    fn holds(&self, reply: &Reply) -> bool {
        let mut values = reply.headers.get_all(self.name.as_str()).iter();
        match &self.equals {
            Some(wanted) => values.any(|value| value.as_bytes().trim_ascii() == wanted.as_bytes()),
            None => values.next().is_some(),
        }
    }
}

impl ReplyRules {
    /// Refuses rules that could never mean what they say. `field` is the path of the settings, such as `webhook.reply`.
    ///
    /// # Errors
    /// Names the setting and the rule.
    pub fn check(&self, field: &str) -> Result<(), BuildError> {
        for (condition, name) in [(&self.sent_when, "sent_when"), (&self.refused_when, "refused_when")] {
            if let Some(condition) = condition {
                condition.check(&format!("{field}.{name}"))?;
            }
        }
        statuses(self.duplicate_reply.iter(), &format!("{field}.duplicate_reply"))?;
        statuses(self.overrides.keys(), &format!("{field}.overrides"))?;
        if let Some(id) = &self.provider_id {
            pointer(id, &format!("{field}.provider_id"))?;
        }
        for (status, special) in &self.overrides {
            if special.reason.trim().is_empty() {
                return Err(BuildError::new(format!("{field}.overrides.{status}.reason"), "must say why"));
            }
        }
        Ok(())
    }
}

fn statuses<'a>(all: impl Iterator<Item = &'a u16>, field: &str) -> Result<(), BuildError> {
    match all.copied().find(|status| !(200..=599).contains(status)) {
        Some(status) => Err(BuildError::new(field, format!("must hold statuses from 200 to 599, not {status}"))),
        None => Ok(()),
    }
}

fn pointer(text: &str, field: &str) -> Result<(), BuildError> {
    if text.is_empty() || text.starts_with('/') {
        return Ok(());
    }
    Err(BuildError::new(field, "must be a JSON pointer, beginning with /"))
}

/// Media type of a reply without its parameters, lower case; empty where none is declared.
pub(super) fn media_type(reply: &Reply) -> String {
    let value = reply.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
