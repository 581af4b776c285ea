//! The same act by the same person twice is one act; an act on what has changed is none.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{ActError, Call};
use crate::{
    engine::folding::ActTold,
    store::{
        self,
        error::StoreError,
        journal::{self, Told},
    },
};

/// How far back an act is recognised.
const LOOK_BACK: i64 = 200;

/// What happened to an intent of late, newest first.
pub(super) struct Recent(Vec<Told>);

fn told(row: &Told) -> Option<ActTold> {
    (row.kind == "act").then(|| serde_json::from_value(row.data.clone()).ok()).flatten()
}

impl Recent {
    /// Of something that is no intent.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) async fn read(conn: &mut PgConnection, intent_id: Uuid) -> Result<Self, StoreError> {
        Ok(Self(journal::newest(conn, intent_id, LOOK_BACK).await?))
    }

    /// The row of the same act by the same person on the same version. Without a version it must be the last thing that
    /// anybody did, and for a question nothing may have been answered since.
    pub(super) fn same(&self, call: &Call<'_>, new: &ActTold) -> Option<&Told> {
        let equal = |row: &Told| {
            row.actor == call.actor
                && told(row).is_some_and(|old| {
                    old.act == new.act
                        && old.statement == new.statement
                        && old.retracts == new.retracts
                        && old.evidence == new.evidence
                        && old.reason == new.reason
                        && old.more == new.more
                        && call.expected.is_none_or(|expected| old.on == Some(expected))
                })
        };
        let last = if new.act == "ask" { self.0.first() } else { self.0.iter().find(|row| row.kind == "act") };
        match call.expected {
            Some(_) if new.act != "ask" => self.0.iter().find(|row| equal(row)),
            Some(_) | None => last.filter(|row| equal(row)),
        }
    }

    /// The intent that an act asked for.
    pub(super) fn counter_intent(row: &Told) -> Option<Uuid> {
        told(row)?.counter_intent
    }

    /// Who did what since that version.
    pub(super) fn since(&self, expected: i64, version: i64) -> ActError {
        let act = self.0.iter().find_map(|row| {
            let act = told(row)?;
            (act.on? >= expected).then(|| (row, did(&act)))
        });
        let moved = || {
            let row = self.0.iter().find(|row| row.kind == "move")?;
            let word = |name: &str| row.data[name].as_str().unwrap_or("-").to_owned();
            Some((row, format!("moved it from {} to {}", word("from"), word("to"))))
        };
        match act.or_else(moved) {
            Some((row, what)) => ActError::Stale { who: row.actor.clone(), what, when: Some(row.at), version },
            None => ActError::Stale { who: "somebody".to_owned(), what: "moved it".to_owned(), when: None, version },
        }
    }

    /// The last act about one escalation.
    pub(super) fn about(&self, escalation: Uuid) -> Option<(&Told, ActTold)> {
        self.0.iter().find_map(|row| told(row).filter(|act| act.escalation == Some(escalation)).map(|act| (row, act)))
    }
}

/// An act in words.
pub(super) fn did(act: &ActTold) -> String {
    let verb = match act.act.as_str() {
        "sent" => "said that it was sent",
        "absent" => "said that it is absent",
        "send_again" => "decided to send it again",
        "send_again_applied" => "sent it again",
        "stop" => "stopped sending it again",
        "close" => "closed it without knowing",
        "compensate" => "agreed to the counter-action and closed it",
        "cancel" => "cancelled it",
        "retract" => "withdrew a statement",
        "approve" => "approved it",
        "reject" => "rejected it",
        "comment" => "commented",
        "claim" => "claimed it",
        "take_over" => "took it over",
        "release" => "released it",
        "snooze" => "snoozed it",
        "assign" => "assigned it",
        "acknowledge" => "acknowledged it",
        "unpark" => "un-parked the destination",
        "ask" => "had it asked about",
        other => other,
    };
    match (&act.evidence, &act.reason) {
        (Some(words), _) | (None, Some(words)) => format!("{verb}: {words}"),
        (None, None) => verb.to_owned(),
    }
}

/// Appends an act to the journal.
pub(super) async fn append(
    conn: &mut PgConnection,
    call: &Call<'_>,
    intent_id: Option<Uuid>,
    attempt: Option<i32>,
    told: &ActTold,
) -> Result<i64, StoreError> {
    let entry = store::journal::Entry {
        intent_id,
        at: call.at,
        kind: "act",
        attempt,
        actor: call.actor,
        data: serde_json::to_value(told).unwrap_or_default(),
    };
    store::journal::append(conn, &entry).await
}
