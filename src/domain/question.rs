//! Asking the downstream: what is asked, and what came back, before anyone judges it.
//!
//! A look-up adapter answers for a subject and its controls by the same path. Only [`crate::domain::absence`] turns an
//! answer into a verdict.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// Which part a probe plays in a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The intent in doubt.
    Subject,
    /// A witness sent before the doubtful attempt, known as sent by reply.
    Elder,
    /// A witness whose send started after the closure of the doubtful attempt.
    Younger,
    /// A made-up name that must not be found.
    Impossible,
}

/// One thing to look for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probe {
    /// Its part.
    pub role: Role,
    /// The full key.
    pub key: String,
    /// The business reference, lower case.
    pub reference: String,
    /// The reference as it travelled in the message, where that is known: what a downstream that minds case has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spelled: Option<String>,
    /// Occurrence of the effect.
    pub occurrence: i32,
    /// Recipient in normal form.
    pub recipient: String,
    /// When the attempt began (its claim), for windows.
    pub sent_from: DateTime<Utc>,
    /// When no byte of it could leave any more.
    pub sent_until: DateTime<Utc>,
}

/// A question to one generation of a destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Question {
    /// Subject first, then controls.
    pub probes: Vec<Probe>,
    /// Database time when the question was put together.
    pub now: DateTime<Utc>,
}

/// Something the downstream showed that could be ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The downstream's own name for it.
    pub id: Option<String>,
    /// Our key as the item carries it, where the downstream keeps keys.
    pub key: Option<String>,
    /// The reference as the item carries it.
    pub reference: Option<String>,
    /// Attempt mark, where carried.
    pub attempt: Option<i32>,
    /// When the downstream says it got it.
    pub at: Option<DateTime<Utc>>,
    /// The downstream's word for its state.
    pub status: Option<String>,
    /// The item names another recipient than the probe.
    pub other_recipient: bool,
    /// Where the item contradicts what was sent, as the settings of the look-up compare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradicts: Option<String>,
}

/// What came back for one probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "seen")]
pub enum Seen {
    /// Items that match the key or the reference exactly.
    Hits {
        /// The items, re-matched by us.
        hits: Vec<Hit>,
    },
    /// Everything was read, and nothing matches.
    Nothing,
    /// Anything odd: error, full last page, log-in page, cap reached.
    CannotTell {
        /// Why.
        why: String,
    },
}

/// Items of a listing that carry a key, whoever asked for them.
#[derive(Debug, Clone, Default)]
pub struct Marked {
    /// The items; each names its key.
    pub items: Vec<Hit>,
    /// Calls that it took.
    pub calls: u32,
}

/// Whether a text has the shape of a key: 32 hexadecimal digits.
pub fn is_key(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The answers to one question, in the order of its probes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// One per probe.
    pub seen: Vec<Seen>,
    /// Subject and witnesses were read from one and the same answer (a listing).
    pub same_answer: bool,
    /// Who the downstream says we are; compared with the configured account and with that at the send.
    pub account: AccountSeen,
    /// Pages read.
    pub pages: u32,
    /// SHA-256 over the bodies, hex.
    pub digest: String,
    /// Query as sent, without secrets.
    pub query: String,
    /// The downstream asked to be left alone for so long (`Retry-After`), from now. Whoever asks obeys it for the whole
    /// destination.
    #[serde(default, with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
}

impl Answer {
    /// Control characters in what the downstream said become U+FFFD: a U+0000 could be stored neither as text nor as JSON,
    /// and the answer would be lost. Names of ours have none, so nothing matches that did not match before.
    #[must_use]
    pub fn printable(mut self) -> Self {
        for seen in &mut self.seen {
            match seen {
                Seen::Hits { hits } => {
                    for hit in hits {
                        [&mut hit.id, &mut hit.key, &mut hit.reference, &mut hit.status]
                            .into_iter()
                            .flatten()
                            .for_each(clean);
                    }
                }
                Seen::CannotTell { why } => clean(why),
                Seen::Nothing => {}
            }
        }
        match &mut self.account {
            AccountSeen::Matches { identity: said } | AccountSeen::Differs { seen: said } => clean(said),
            AccountSeen::NotChecked => {}
        }
        clean(&mut self.query);
        self
    }
}

fn clean(text: &mut String) {
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, "\u{fffd}");
    }
}

/// Result of the account check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "account")]
pub enum AccountSeen {
    /// The check is configured and agreed.
    Matches {
        /// The identity, as evidence.
        identity: String,
    },
    /// It is configured and disagreed.
    Differs {
        /// What was seen.
        seen: String,
    },
    /// Not configured; absence is then never believed.
    NotChecked,
}

/// What a look-up can do; decides what absence may rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Items carry our key. Without it a hit on the reference is only weak.
    pub shows_key: bool,
    /// A question about a window lists everything in it, witnesses included.
    pub lists: bool,
}
