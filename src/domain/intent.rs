//! An intent as the rest of the house sees it: names, destination policy words, and what is handed to a channel.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How a destination is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// Signed POST of JSON to one URL.
    Webhook,
    /// One message to one envelope recipient through a relay.
    Smtp,
    /// A text message through a provider's HTTP API.
    Sms,
}

impl ChannelKind {
    /// The word used in SQL, configuration and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Smtp => "smtp",
            Self::Sms => "sms",
        }
    }
}

/// What holds when nobody knows whether an attempt arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// Ask the downstream (replay or look-up), then people.
    Ask,
    /// A person decides at once.
    Person,
    /// Closed as perhaps sent, counted, never sent again.
    AtMostOnce,
    /// A person may start a declared counter-action.
    Compensate,
    /// Naturally idempotent: may be sent again without proof. Needs a stated reason.
    Harmless,
}

/// The identity of a call: fixed before anything is sent, the same in every repeat of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Whose call it is.
    pub tenant: String,
    /// The run of the agent or program.
    pub run_id: String,
    /// Position in that run.
    pub step: i64,
    /// Names one effect of several in a step; empty for the only one.
    pub slot: String,
    /// Corrections after a hard-negative end.
    pub revision: i32,
}

/// Everything a channel needs for one attempt. Built by the dispatcher from a claim.
#[derive(Clone)]
pub struct Outgoing {
    /// The intent.
    pub intent_id: Uuid,
    /// Its tenant.
    pub tenant: String,
    /// Name of the destination.
    pub destination: String,
    /// Pinned key, 32 lower-case hex digits unless the destination asks for another spelling.
    pub key: String,
    /// The business reference as the caller spelled it.
    pub reference: String,
    /// 1, 2, … for a wanted repeat.
    pub occurrence: i32,
    /// Normal form of the channel; empty for webhooks.
    pub recipient: String,
    /// Number of this attempt.
    pub attempt: i32,
    /// An earlier attempt of this intent handed over bytes and ended in doubt, so "duplicate" may be about ourselves.
    pub earlier_bytes: bool,
    /// When the intent was admitted; the only date a rendering may use.
    pub created_at: DateTime<Utc>,
    /// The payload as given, JSON text.
    pub payload: String,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the payload or the recipient.
        f.debug_struct("Outgoing")
            .field("intent_id", &self.intent_id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
