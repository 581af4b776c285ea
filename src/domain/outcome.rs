//! What one attempt learned. Adapters return these values; "I do not know" is one of them, never an error.

use serde::{Deserialize, Serialize};

/// The four ends of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The downstream said that it has it.
    Sent {
        /// Its own name for the effect, where it gave one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_id: Option<String>,
    },
    /// The downstream said no to this attempt, for good.
    Refused {
        /// Its code: HTTP status, SMTP reply.
        code: u16,
    },
    /// Proven: this attempt made no effect.
    NotSent {
        /// The proof.
        proof: Proof,
        /// How long the downstream asked us to wait, seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// It may have happened.
    Ambiguous {
        /// What was lost.
        doubt: DoubtKind,
    },
}

impl Outcome {
    /// The word used in SQL and output.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Sent { .. } => "sent",
            Self::Refused { .. } => "refused",
            Self::NotSent { .. } => "not_sent",
            Self::Ambiguous { .. } => "ambiguous",
        }
    }

    /// No effect of this attempt can exist.
    pub fn is_hard_negative(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::NotSent { .. })
    }
}

/// Why an attempt provably made no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Name not resolved, address refused by the egress guard, connection refused or timed out: no conversation began.
    NotConnected,
    /// The TLS handshake failed before the first request byte.
    TlsFailed,
    /// The request or message stayed incomplete and the connection was closed.
    Incomplete,
    /// A definite "not now" to this message: 425, SMTP 4yz.
    Deferred,
    /// A definite "too much" to us, whatever the message: 429, a greeting or a sender that is put off. The destination
    /// waits, and the message spends nothing.
    Throttled,
    /// The downstream refuses our credentials or us: the destination is parked, not the intent failed.
    Parked,
    /// The gate closed before the last bytes.
    SelfStopped,
    /// Given back unstarted: claimed, but no byte was written (shutdown, lost claim reply).
    NotStarted,
}

impl Proof {
    /// Before a conversation began: spends none of the allowed attempts.
    pub fn spends_no_attempt(self) -> bool {
        match self {
            Self::NotConnected
            | Self::TlsFailed
            | Self::SelfStopped
            | Self::NotStarted
            | Self::Parked
            | Self::Throttled => true,
            Self::Incomplete | Self::Deferred => false,
        }
    }

    /// The destination itself must be parked.
    pub fn parks(self) -> bool {
        matches!(self, Self::Parked)
    }
}

/// What was lost, where an attempt is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtKind {
    /// All bytes handed over, no reply in time.
    NoReply,
    /// All bytes handed over, connection reset or closed without a reply.
    ConnectionLost,
    /// A reply that proves nothing: 5xx, 3xx, 408, 409, HTML for JSON, unparsable.
    UnclearReply,
    /// The downstream replays a stored failure under our key.
    PoisonedKey,
    /// The process was stopped or killed with the attempt open.
    Interrupted,
    /// The lease ended without a result.
    LeaseExpired,
    /// The worker's heartbeat stopped.
    WorkerDead,
    /// The database lost history while the attempt was open.
    HistoryLost,
}

/// How far an attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nothing left this process.
    Prepared,
    /// Resolving and dialling.
    Connect,
    /// TLS handshake.
    Tls,
    /// Greeting, EHLO, AUTH, MAIL, RCPT, DATA before 354.
    Envelope,
    /// Request or message bytes.
    Body,
    /// Everything but the held-back last bytes.
    AtGate,
    /// Everything handed over; the reply is awaited.
    Handed,
    /// A reply was read.
    Replied,
}

/// What the channel saw, stored with the attempt; what was not seen is left out. Never payload, recipient or secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// How far it came.
    pub stage: Stage,
    /// Payload-carrying bytes handed to the kernel.
    pub bytes_handed: u64,
    /// Bytes of the whole request or message.
    pub bytes_needed: u64,
    /// Reply code, where one was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Excerpt of the reply, at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
    /// Address that was dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Duration of the whole attempt, milliseconds.
    pub millis: u64,
    /// What went wrong, in words for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The account the downstream says we are, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The reply carried a replay marker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// How the connection ended: closed, reset, kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
}

impl Report {
    /// A report of an attempt that wrote nothing.
    pub fn nothing_written(cause: impl Into<String>) -> Self {
        Self {
            stage: Stage::Prepared,
            bytes_handed: 0,
            bytes_needed: 0,
            code: None,
            excerpt: None,
            peer: None,
            millis: 0,
            cause: Some(cause.into()),
            account: None,
            replayed: false,
            closed: None,
        }
    }
}

/// An attempt's end: what it means and what was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// What it means.
    pub outcome: Outcome,
    /// What was seen.
    pub report: Report,
}
