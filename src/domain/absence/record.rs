//! What goes into the journal with a verdict: enough to compute it again, without personal data and other tenants' names.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{Case, Finding, Known, RULES_VERSION};
use crate::domain::question::{AccountSeen, Role, Seen};

impl Case {
    /// The case of a journal row, to judge it once more.
    ///
    /// # Errors
    /// The record is none, or was written by other rules.
    pub fn from_record(record: &Value) -> Result<Self, String> {
        let version = record.get("rules_version").and_then(Value::as_u64);
        if version != Some(u64::from(RULES_VERSION)) {
            return Err(format!("read the record: rules_version must be {RULES_VERSION}"));
        }
        let case = record.get("case").cloned().unwrap_or_default();
        serde_json::from_value(case).map_err(|error| format!("read the record: {error}"))
    }

    /// What was looked for by one path and what came back, a line each: the subject and its controls, then who answered.
    pub fn in_words(&self) -> Vec<String> {
        let probes = self.question.probes.iter().zip(&self.answer.seen);
        let mut lines: Vec<String> = probes
            .map(|(probe, seen)| {
                let role = match probe.role {
                    Role::Subject => "this one",
                    Role::Elder => "an elder send known to have arrived",
                    Role::Younger => "a younger send known to have arrived",
                    Role::Impossible => "a name that cannot exist",
                };
                let saw = match seen {
                    Seen::Hits { hits } => format!("{} found", hits.len()),
                    Seen::Nothing => "nothing found".to_owned(),
                    Seen::CannotTell { why } => format!("cannot tell: {why}"),
                };
                format!("{role}: {saw}")
            })
            .collect();
        lines.push(match &self.answer.account {
            AccountSeen::Matches { identity } => format!("the account that answered: {identity}"),
            AccountSeen::Differs { seen } => format!("another account answered: {seen}"),
            AccountSeen::NotChecked => "nobody checked which account answered".to_owned(),
        });
        lines
    }
}

pub(super) fn write(case: &Case, finding: &Finding, ask_again_at: Option<DateTime<Utc>>) -> Value {
    json!({
        "rules_version": RULES_VERSION,
        "case": masked(case),
        "ripe_at": case.ripe_at(),
        "horizon_at": case.horizon_at(),
        "equal_answers": super::nothing::equal_answers(case),
        "counts": finding.counts,
        "conclusion": finding.verdict,
        "ask_again_at": ask_again_at,
    })
}

/// Recipients are left out; keys of other tenants become digests, equal where they were equal.
fn masked(case: &Case) -> Case {
    let mut case = case.clone();
    for probe in &mut case.question.probes {
        probe.recipient.clear();
    }
    let foreign: Vec<String> =
        case.known.iter().filter(|known| known.other_tenant).filter_map(|known| known.key.clone()).collect();
    for known in case.known.iter_mut().filter(|known| known.other_tenant) {
        known.intent_id = Uuid::nil();
        known.key = known.key.as_deref().map(digest);
    }
    for seen in &mut case.answer.seen {
        if let Seen::Hits { hits } = seen {
            for hit in hits {
                if let Some(key) = hit.key.as_deref().filter(|key| foreign.iter().any(|own| super::same_key(own, key)))
                {
                    hit.key = Some(digest(key));
                    hit.id = None;
                }
            }
        }
    }
    case
}

fn digest(key: &str) -> String {
    let digest = Sha256::digest(key.to_ascii_lowercase().as_bytes());
    digest.iter().take(8).fold("masked:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The name under which an intent may stand in words for a person.
pub(super) fn name(known: &Known) -> String {
    if known.other_tenant { "an intent of another tenant".to_owned() } else { format!("intent {}", known.intent_id) }
}
