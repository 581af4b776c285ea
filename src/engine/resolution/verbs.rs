//! The closed list of acts, and what must be said with each.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::ActError;

/// How long *send again* can be stopped.
pub const HOLD: Duration = Duration::from_secs(10);

/// Longest reason or name, characters.
const LONGEST_REASON: usize = 500;
/// Longest evidence or comment, characters.
const LONGEST_EVIDENCE: usize = 4000;

/// An act with everything that it needs; made by [`Act::read`] alone, so that none is incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// I take care of it.
    Claim {
        /// Until when.
        until: Option<DateTime<Utc>>,
    },
    /// I no longer do.
    Release,
    /// I take care of it instead of somebody else.
    TakeOver {
        /// Until when.
        until: Option<DateTime<Utc>>,
    },
    /// Not before then.
    Snooze {
        /// Until when.
        until: DateTime<Utc>,
    },
    /// Somebody takes care of it.
    Assign {
        /// Who.
        to: String,
    },
    /// I have seen what it reports.
    Acknowledge {
        /// What was done about it.
        reason: String,
    },
    /// The destination may be sent to again.
    Unpark {
        /// What was repaired.
        reason: String,
    },
    /// For whoever comes next.
    Comment {
        /// The words.
        text: String,
    },
    /// Ask the downstream now.
    Ask,
    /// It was sent: a fact.
    Sent {
        /// What it rests on.
        evidence: String,
    },
    /// It is absent: a fact. Nothing is sent by it.
    Absent {
        /// What it rests on.
        evidence: String,
    },
    /// Send it again; binds after [`HOLD`].
    SendAgain {
        /// Why.
        reason: String,
        /// Typed by the person; must be the intent's.
        reference: String,
        /// A new deadline; needed where the old one passed.
        deadline: Option<DateTime<Utc>>,
    },
    /// Stop *send again* before it binds.
    Stop {
        /// Why, where it was said.
        reason: Option<String>,
    },
    /// Close without knowing: it keeps its effect.
    Close {
        /// Why.
        reason: String,
    },
    /// Ask for the declared counter-action, and close without knowing.
    Compensate {
        /// Why.
        reason: String,
    },
    /// Withdraw: cancelled where nothing was attempted, abandoned where it is in doubt.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Withdraw a statement.
    Retract {
        /// Its row in the journal.
        statement: i64,
        /// Why.
        reason: String,
    },
    /// It may be sent.
    Approve {
        /// Why, where it was said.
        reason: Option<String>,
    },
    /// It must not be sent.
    Reject {
        /// Why.
        reason: String,
    },
}

/// All verbs, as they stand in paths, metrics and the journal.
pub const VERBS: [&str; 19] = [
    "claim",
    "release",
    "take_over",
    "snooze",
    "assign",
    "acknowledge",
    "unpark",
    "comment",
    "ask",
    "sent",
    "absent",
    "send_again",
    "stop",
    "close",
    "compensate",
    "cancel",
    "retract",
    "approve",
    "reject",
];

/// What was said with a verb. A member that the verb has no use for is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// Why; for `comment` the comment itself, of up to 4000 characters; elsewhere up to 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4000)]
    pub reason: Option<String>,
    /// What a fact rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4000)]
    pub evidence: Option<String>,
    /// The reference, typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500)]
    pub reference: Option<String>,
    /// A new deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// To whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 500)]
    pub to: Option<String>,
    /// The row of the journal that is withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<i64>,
    /// The version that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

impl Words {
    fn given(&self) -> [(&'static str, bool); 7] {
        [
            ("reason", self.reason.is_some()),
            ("evidence", self.evidence.is_some()),
            ("reference", self.reference.is_some()),
            ("deadline", self.deadline.is_some()),
            ("until", self.until.is_some()),
            ("to", self.to.is_some()),
            ("statement", self.statement.is_some()),
        ]
    }
}

impl Act {
    /// Reads a verb with its words.
    ///
    /// # Errors
    /// [`ActError::Incomplete`] names what is missing, too long or of no use here; an unknown verb is `NotFound`.
    pub fn read(verb: &str, words: &Words) -> Result<Self, ActError> {
        let reason = || required("reason", words.reason.as_deref(), "must say why", LONGEST_REASON);
        let maybe = || words.reason.as_deref().map(|_| reason()).transpose();
        let evidence =
            || required("evidence", words.evidence.as_deref(), "must say what was seen, and where", LONGEST_EVIDENCE);
        let (act, used): (Self, &[&str]) = match verb {
            "claim" => (Self::Claim { until: words.until }, &["until"]),
            "release" => (Self::Release, &[]),
            "take_over" => (Self::TakeOver { until: words.until }, &["until"]),
            "snooze" => {
                let until = words.until.ok_or_else(|| ActError::missing("until", "must say until when"))?;
                (Self::Snooze { until }, &["until"])
            }
            "assign" => {
                let to = required("to", words.to.as_deref(), "must name a person", LONGEST_REASON)?;
                (Self::Assign { to }, &["to"])
            }
            "acknowledge" => (Self::Acknowledge { reason: reason()? }, &["reason"]),
            "unpark" => (Self::Unpark { reason: reason()? }, &["reason"]),
            "comment" => {
                let text = required("reason", words.reason.as_deref(), "must hold the comment", LONGEST_EVIDENCE)?;
                (Self::Comment { text }, &["reason"])
            }
            "ask" => (Self::Ask, &[]),
            "sent" => (Self::Sent { evidence: evidence()? }, &["evidence"]),
            "absent" => (Self::Absent { evidence: evidence()? }, &["evidence"]),
            "send_again" => {
                let rule = "must repeat the reference of the intent";
                let reference = required("reference", words.reference.as_deref(), rule, LONGEST_REASON)?;
                let act = Self::SendAgain { reason: reason()?, reference, deadline: words.deadline };
                (act, &["reason", "reference", "deadline"])
            }
            "stop" => (Self::Stop { reason: maybe()? }, &["reason"]),
            "close" => (Self::Close { reason: reason()? }, &["reason"]),
            "compensate" => (Self::Compensate { reason: reason()? }, &["reason"]),
            "cancel" => (Self::Cancel { reason: reason()? }, &["reason"]),
            "retract" => {
                let rule = "must be the journal id of the statement";
                let statement = words.statement.ok_or_else(|| ActError::missing("statement", rule))?;
                (Self::Retract { statement, reason: reason()? }, &["reason", "statement"])
            }
            "approve" => (Self::Approve { reason: maybe()? }, &["reason"]),
            "reject" => (Self::Reject { reason: reason()? }, &["reason"]),
            _ => return Err(ActError::NotFound("act")),
        };
        match words.given().into_iter().find(|(name, there)| *there && !used.contains(name)) {
            Some((field, _)) => Err(ActError::missing(field, format!("has no meaning for {verb}"))),
            None => Ok(act),
        }
    }

    /// The verb.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::Release => "release",
            Self::TakeOver { .. } => "take_over",
            Self::Snooze { .. } => "snooze",
            Self::Assign { .. } => "assign",
            Self::Acknowledge { .. } => "acknowledge",
            Self::Unpark { .. } => "unpark",
            Self::Comment { .. } => "comment",
            Self::Ask => "ask",
            Self::Sent { .. } => "sent",
            Self::Absent { .. } => "absent",
            Self::SendAgain { .. } => "send_again",
            Self::Stop { .. } => "stop",
            Self::Close { .. } => "close",
            Self::Compensate { .. } => "compensate",
            Self::Cancel { .. } => "cancel",
            Self::Retract { .. } => "retract",
            Self::Approve { .. } => "approve",
            Self::Reject { .. } => "reject",
        }
    }

    /// It is about who takes care of an escalation, not about the intent; its version is the escalation's.
    pub fn handles(&self) -> bool {
        match self {
            Self::Claim { .. }
            | Self::Release
            | Self::TakeOver { .. }
            | Self::Snooze { .. }
            | Self::Assign { .. }
            | Self::Acknowledge { .. }
            | Self::Unpark { .. } => true,
            Self::Comment { .. }
            | Self::Ask
            | Self::Sent { .. }
            | Self::Absent { .. }
            | Self::SendAgain { .. }
            | Self::Stop { .. }
            | Self::Close { .. }
            | Self::Compensate { .. }
            | Self::Cancel { .. }
            | Self::Retract { .. }
            | Self::Approve { .. }
            | Self::Reject { .. } => false,
        }
    }

    /// Whoever does it must have seen the newest version; surfaces ask for it.
    pub fn decides(&self) -> bool {
        match self {
            Self::Sent { .. }
            | Self::Absent { .. }
            | Self::SendAgain { .. }
            | Self::Close { .. }
            | Self::Compensate { .. }
            | Self::Cancel { .. }
            | Self::Retract { .. }
            | Self::Approve { .. }
            | Self::Reject { .. }
            | Self::Acknowledge { .. } => true,
            Self::Claim { .. }
            | Self::Release
            | Self::TakeOver { .. }
            | Self::Snooze { .. }
            | Self::Assign { .. }
            | Self::Unpark { .. }
            | Self::Comment { .. }
            | Self::Ask
            // Whoever must stop it has no time to read again.
            | Self::Stop { .. } => false,
        }
    }
}

fn required(field: &'static str, text: Option<&str>, rule: &str, longest: usize) -> Result<String, ActError> {
    let text = text.map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return Err(ActError::missing(field, rule));
    }
    if text.chars().count() > longest {
        return Err(ActError::missing(field, format!("must not be longer than {longest} characters")));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(ActError::missing(field, "must not contain control characters"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_read_or_names_what_it_needs() {
        for verb in VERBS {
            match Act::read(verb, &Words::default()) {
                Ok(act) => assert_eq!(act.verb(), verb),
                Err(ActError::Incomplete { field, rule }) => assert!(!field.is_empty() && rule.starts_with("must")),
                Err(other) => assert!(matches!(other, ActError::Incomplete { .. }), "{verb}: {other}"),
            }
        }
        assert!(matches!(Act::read("resend", &Words::default()), Err(ActError::NotFound("act"))));
    }

    #[test]
    fn what_has_no_meaning_for_a_verb_is_refused() {
        let words = Words { reason: Some("x".to_owned()), evidence: Some("y".to_owned()), ..Words::default() };
        assert!(matches!(Act::read("close", &words), Err(ActError::Incomplete { field: "evidence", .. })));
    }
}
