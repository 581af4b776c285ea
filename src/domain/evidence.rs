//! Evidence as the fold reads it: attempts, verdicts about them, statements of people, sightings.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;

/// Why an attempt exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptKind {
    /// A send that may make an effect.
    Send,
    /// The same bytes under the same key inside the key's life: the downstream answers from its store.
    Replay,
}

impl AttemptKind {
    /// The word used in SQL and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Replay => "replay",
        }
    }
}

/// One attempt as the fold sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// 1, 2, …
    pub number: i32,
    /// Send or replay.
    pub kind: AttemptKind,
    /// `None` while it is open.
    pub outcome: Option<Outcome>,
}

/// What asking concluded about one attempt. Stored in the journal with everything that allows computing it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// The downstream has exactly one, by key; or one by reference that only this intent explains (`weak`).
    Found {
        /// The downstream's name for it.
        provider_id: Option<String>,
        /// By reference only.
        weak: bool,
    },
    /// It has more than one.
    Duplicate {
        /// All its names for them.
        provider_ids: Vec<String>,
    },
    /// Proven not there, until then.
    Absent {
        /// The proof goes stale.
        valid_until: DateTime<Utc>,
    },
    /// Absent by the passing of the lag alone, without an ordered bracket.
    AbsentByLag {
        /// The proof goes stale.
        valid_until: DateTime<Utc>,
        /// The destination says that this is enough to send again (`absent_by_lag = "resend"`).
        resend: bool,
    },
    /// A hit that no row of ours explains.
    Conflict {
        /// What was seen.
        why: String,
    },
    /// Nothing was learned.
    Inconclusive {
        /// Why.
        why: String,
    },
}

/// What a person stated or decided about an intent, in order. A retracted statement is left out before the fold runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "statement")]
pub enum Statement {
    /// "It was sent", with evidence.
    Sent,
    /// "It is absent", with evidence: about every attempt up to `upto`.
    Absent {
        /// Newest attempt at that time.
        upto: i32,
    },
    /// Closed without knowing.
    Closed,
    /// Cancelled by a person or, before any attempt, by the producer.
    Cancelled,
    /// Approval given.
    Approved,
    /// Approval refused.
    Rejected,
    /// Applied: sent again after a failed end; attempts up to `upto` no longer count against the budget.
    SendAgain {
        /// Newest attempt at that time.
        upto: i32,
    },
}
