//! unknown → sent, and what came of it: reports that a downstream sends by itself (delivery receipts).
//!
//! Whoever has our full key has the message, whatever it says about it: a late "failed" proves that it *was* accepted, so the
//! intent is sent, and `bounced`. Reports are ordered by the downstream's clock; the newest final one counts. Called by the
//! surface that takes them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{
    fleet::Fleet,
    folding::{Case, Cause, EvidenceTold, Moved, settle},
};
use crate::{
    clock::Clock,
    config::sightings::Sightings,
    domain::{
        outcome::{Ended, Outcome, Report},
        plain::plain,
        reason::Reason,
    },
    store::{self, error::StoreError, journal::Entry, sightings::NewSighting},
    telemetry::metrics::Metrics,
};

/// Most characters that are kept of what a downstream writes.
const LONGEST: usize = 200;

/// What a report means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The downstream has it.
    Accepted,
    /// It arrived.
    Delivered,
    /// The downstream had it, and it did not arrive.
    Failed,
    /// A word that the destination does not declare.
    Other,
}

impl Status {
    /// The word in the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Other => "other",
        }
    }

    fn is_final(self) -> bool {
        match self {
            Self::Delivered | Self::Failed => true,
            Self::Accepted | Self::Other => false,
        }
    }
}

/// A report as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighted {
    /// What it means.
    pub status: Status,
    /// The downstream's word.
    pub word: String,
    /// Its error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Its name for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Its time.
    pub at: DateTime<Utc>,
}

impl Sighted {
    /// `undelivered, code 30001`.
    pub(super) fn words(&self) -> String {
        match &self.code {
            Some(code) => format!("{}, code {code}", self.word),
            None => self.word.clone(),
        }
    }
}

/// The newest final report by the downstream's clock; of equally old ones the first that came.
pub(super) fn last_word(all: &[Sighted]) -> Option<&Sighted> {
    let mut newest: Option<&Sighted> = None;
    for one in all.iter().filter(|one| one.status.is_final()) {
        if newest.is_none_or(|newest| one.at > newest.at) {
            newest = Some(one);
        }
    }
    newest
}

/// A report taken out of the body of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// What stands where our key should.
    pub key: String,
    /// The business reference, where it is told.
    pub reference: Option<String>,
    /// The rest.
    pub sighted: Sighted,
}

/// Takes the reports out of a body, by the mapping of the destination. What lacks key or status is left out; `now` stands in for
/// a time that is not told or cannot be read.
pub fn read(mapping: &Sightings, body: &Value, now: DateTime<Utc>) -> Vec<Receipt> {
    let one = std::slice::from_ref(body);
    let items = match &mapping.items {
        Some(pointer) => body.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice),
        None => body.as_array().map_or(one, Vec::as_slice),
    };
    items.iter().filter_map(|item| receipt(mapping, item, now)).collect()
}

fn receipt(mapping: &Sightings, item: &Value, now: DateTime<Utc>) -> Option<Receipt> {
    let text = |pointer: &str| match item.pointer(pointer)? {
        Value::String(text) => Some(plain(text.trim()).chars().take(LONGEST).collect::<String>()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let optional = |pointer: &Option<String>| pointer.as_deref().and_then(text).filter(|text| !text.is_empty());
    let key = text(&mapping.key_at)?.to_ascii_lowercase();
    let word = text(&mapping.status_at)?;
    let among = |words: &[String]| words.iter().any(|one| one.eq_ignore_ascii_case(&word));
    let status = if among(&mapping.failed) {
        Status::Failed
    } else if among(&mapping.delivered) {
        Status::Delivered
    } else if among(&mapping.accepted) {
        Status::Accepted
    } else {
        Status::Other
    };
    let at = mapping.time_at.as_deref().and_then(|pointer| item.pointer(pointer)).and_then(|at| mapping.time.read(at));
    Some(Receipt {
        key,
        reference: optional(&mapping.reference_at),
        sighted: Sighted {
            status,
            word,
            code: optional(&mapping.code_at),
            provider_id: optional(&mapping.id_at),
            at: at.unwrap_or(now),
        },
    })
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is evidence about this intent.
    Evidence(Uuid),
    /// It is kept, and says nothing that was declared.
    Kept(Uuid),
    /// The same one was there before.
    Repeated,
    /// A key of our form that no row explains.
    Orphan,
    /// No key of ours.
    NotOurs,
}

/// Takes one report of a destination.
///
/// # Errors
/// When Postgres does; the caller's answer then makes the downstream report again.
pub async fn take(
    pool: &PgPool,
    fleet: &Fleet,
    clock: &dyn Clock,
    metrics: &Metrics,
    destination: &str,
    receipt: &Receipt,
    by: &str,
) -> Result<Taken, StoreError> {
    if !is_key(&receipt.key) {
        return Ok(Taken::NotOurs);
    }
    let mut tx = store::begin_durable(pool).await?;
    let known = store::sightings::intent_of(&mut tx, destination, &receipt.key, receipt.reference.as_deref()).await?;
    if let Some(id) = known {
        // Before anything is written, so that everybody locks in the same order.
        store::intents::lock(&mut tx, id, clock.sql_now()).await?;
    }
    let sighted = &receipt.sighted;
    let new = NewSighting {
        destination,
        key: &receipt.key,
        intent_id: known,
        status: sighted.status.as_str(),
        word: &sighted.word,
        code: sighted.code.as_deref(),
        provider_id: sighted.provider_id.as_deref().unwrap_or_default(),
        at: sighted.at,
        received_by: by,
    };
    if !store::sightings::keep(&mut tx, &new).await? {
        return Ok(Taken::Repeated);
    }
    let Some(id) = known else {
        orphan(&mut tx, destination, receipt).await?;
        tx.commit().await?;
        return Ok(Taken::Orphan);
    };
    if sighted.status == Status::Other {
        tx.commit().await?;
        return Ok(Taken::Kept(id));
    }
    let moved = fold_in(&mut tx, fleet, clock, id, sighted, &format!("downstream:{by}")).await?;
    tx.commit().await?;
    if let Some(moved) = moved {
        moved.count(metrics, "sighting");
        tracing::info!(intent.id = %id, destination, status = sighted.status.as_str(), code = sighted.code, state = moved.folded.state.as_str(), "sighted");
    }
    Ok(Taken::Evidence(id))
}

/// 32 hex digits: the form of a key.
fn is_key(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

async fn orphan(conn: &mut PgConnection, destination: &str, receipt: &Receipt) -> Result<(), StoreError> {
    let summary = format!("{destination} reports {} of a key that no row explains", receipt.sighted.word);
    let detail = json!({ "key": receipt.key, "reference": receipt.reference, "sighted": receipt.sighted });
    store::escalations::raise_sighting(conn, destination, "", &summary, &detail, None).await?;
    tracing::error!(destination, key = receipt.key, "a report about a key that no row explains");
    Ok(())
}

async fn fold_in(
    conn: &mut PgConnection,
    fleet: &Fleet,
    clock: &dyn Clock,
    id: Uuid,
    sighted: &Sighted,
    actor: &str,
) -> Result<Option<Moved>, StoreError> {
    let at = clock.sql_now();
    let Some(before) = Case::lock(conn, id, at).await? else { return Ok(None) };
    let mut report = Report::nothing_written(format!("reported by the downstream: {}", sighted.words()));
    report.stage = crate::domain::outcome::Stage::Replied;
    let ended = Ended { outcome: Outcome::Sent { provider_id: sighted.provider_id.clone() }, report };
    let told = EvidenceTold { token: None, ended, sighting: Some(sighted.clone()) };
    let entry = Entry {
        intent_id: Some(id),
        at,
        kind: "evidence",
        attempt: attempt_of(&before, sighted),
        actor,
        data: serde_json::to_value(told).unwrap_or_default(),
    };
    store::journal::append(conn, &entry).await?;
    let was_returned = before.returned().is_some();
    let Some(case) = Case::lock(conn, id, at).await? else { return Ok(None) };
    let policy = fleet.policy(&case.intent.destination);
    let mut cause = Cause::of(actor);
    cause.appended = 1;
    cause.detail = Some(format!("the downstream reports: {}", sighted.words()));
    let moved = settle(conn, &case, &policy, &cause).await?;
    if was_returned && case.returned().is_none() {
        let reasons = [Reason::Bounced.as_str().to_owned()];
        store::escalations::close(conn, id, &reasons, actor, "it was delivered after all", case.intent.now).await?;
    }
    Ok(Some(moved))
}

/// Which attempt a report is about: the one whose reply gave the same name; where all that is known has other names, the newest
/// in doubt. `None`: not told, so the newest.
fn attempt_of(case: &Case, sighted: &Sighted) -> Option<i32> {
    let named = sighted.provider_id.as_deref()?;
    let same = |id: &str| id.trim_start_matches('0').eq_ignore_ascii_case(named.trim_start_matches('0'));
    let mut others = false;
    for row in &case.attempts {
        if let Some(Outcome::Sent { provider_id: Some(id) }) = &row.attempt.outcome {
            if same(id) {
                return Some(row.attempt.number);
            }
            others = true;
        }
    }
    let doubted = |row: &&store::attempts::AttemptRow| matches!(row.attempt.outcome, Some(Outcome::Ambiguous { .. }));
    others.then(|| case.attempts.iter().rev().find(doubted).map(|row| row.attempt.number))?
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn mapping(more: Value) -> Sightings {
        let mut whole = json!({"key_at": "/ref", "id_at": "/sid", "status_at": "/status", "time_at": "/at", "code_at": "/code",
            "accepted": ["queued"], "delivered": ["delivered"], "failed": ["undelivered", "failed"]});
        for (name, value) in more.as_object().unwrap() {
            whole[name] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    fn sighted(status: Status, seconds: i64) -> Sighted {
        let at = DateTime::from_timestamp(seconds, 0).unwrap();
        Sighted { status, word: "w".to_owned(), code: None, provider_id: None, at }
    }

    #[test]
    fn reports_are_read_one_by_one_or_as_a_list_and_odd_ones_are_left_out() {
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let body = json!({"ref": KEY.to_uppercase(), "sid": 77, "status": "UNDELIVERED", "code": "30001", "at": "2023-01-01T00:00:00Z"});
        let receipts = read(&mapping(json!({})), &body, now);
        assert_eq!(receipts.len(), 1);
        let first = receipts.first().unwrap();
        assert_eq!((first.key.as_str(), first.sighted.status), (KEY, Status::Failed));
        assert_eq!(first.sighted.words(), "UNDELIVERED, code 30001");
        assert_eq!(first.sighted.provider_id.as_deref(), Some("77"));
        assert_eq!(first.sighted.at.to_rfc3339(), "2023-01-01T00:00:00+00:00");
        let list = json!({"results": [body, {"ref": KEY}, {"status": "delivered"}, 5, null, {"ref": KEY, "status": "weird", "at": "?"}]});
        let receipts = read(&mapping(json!({"items": "/results"})), &list, now);
        let statuses: Vec<Status> = receipts.iter().map(|r| r.sighted.status).collect();
        assert_eq!(statuses, [Status::Failed, Status::Other]);
        assert_eq!(receipts.last().unwrap().sighted.at, now, "a time that cannot be read is the arrival");
        assert!(read(&mapping(json!({"items": "/nothing"})), &list, now).is_empty());
    }

    #[test]
    fn the_newest_final_word_counts_in_whatever_order_it_came() {
        let (delivered, failed, queued) =
            (sighted(Status::Delivered, 20), sighted(Status::Failed, 10), sighted(Status::Accepted, 99));
        for order in [[&delivered, &failed, &queued], [&failed, &queued, &delivered], [&queued, &failed, &delivered]] {
            let all: Vec<Sighted> = order.into_iter().cloned().collect();
            assert_eq!(last_word(&all).unwrap().status, Status::Delivered);
        }
        let same_time = [sighted(Status::Delivered, 20), sighted(Status::Failed, 20)];
        assert_eq!(last_word(&same_time).unwrap().status, Status::Delivered, "the first of equals");
        assert_eq!(last_word(&[queued]), None);
    }

    #[test]
    fn only_a_full_key_is_a_key() {
        assert!(is_key(KEY));
        for other in ["", "INV-2291", &KEY[1..], &format!("{KEY}0"), &KEY.replace('a', "g"), &KEY.to_uppercase()] {
            assert!(!is_key(other), "{other}");
        }
    }
}
