//! A ledger with people at it.

use std::sync::Arc;

use settled::{
    engine::{
        decider::Decider,
        resolution::{self, Act, ActError, Person, Resolved, Target, Words},
        runner::{Progress, Step},
    },
    store::tokens::Kind,
    telemetry::metrics::Metrics,
};
use uuid::Uuid;

use crate::support::ledger::Ledger;

pub fn person(kind: Kind, name: &str) -> Person {
    Person { principal: name.to_owned(), kind, tenant: None }
}

pub fn ada() -> Person {
    person(Kind::Responder, "ada")
}

pub fn bob() -> Person {
    person(Kind::Responder, "bob")
}

pub fn root() -> Person {
    person(Kind::Admin, "root")
}

/// Everything that any verb could need.
pub fn say(verb: &str) -> Words {
    let reason = || Some("because".to_owned());
    match verb {
        "sent" | "absent" => Words { evidence: Some("seen in the bank's list".to_owned()), ..Words::default() },
        "claim" | "take_over" | "release" | "ask" => Words::default(),
        "snooze" => Words { until: Some(chrono::Utc::now() + chrono::TimeDelta::hours(5)), ..Words::default() },
        "assign" => Words { to: Some("responder:bob".to_owned()), ..Words::default() },
        "send_again" => Words { reason: reason(), reference: Some("INV-1".to_owned()), ..Words::default() },
        "retract" => Words { reason: reason(), statement: Some(1), ..Words::default() },
        _ => Words { reason: reason(), ..Words::default() },
    }
}

/// An act on what the test names, on the newest version.
pub async fn act(
    ledger: &Ledger,
    person: &Person,
    target: Target,
    verb: &str,
    words: Words,
) -> Result<Resolved, ActError> {
    act_on(ledger, person, target, verb, words, None).await
}

/// An act on a version.
pub async fn act_on(
    ledger: &Ledger,
    person: &Person,
    target: Target,
    verb: &str,
    words: Words,
    version: Option<i64>,
) -> Result<Resolved, ActError> {
    let act = Act::read(verb, &words)?;
    resolution::act(ledger.pool(), &ledger.fleet(), &*ledger.clock, person, target, &act, version).await
}

/// An act on an intent with the usual words, which must be possible.
pub async fn does(ledger: &Ledger, person: &Person, id: Uuid, verb: &str) -> Resolved {
    act(ledger, person, Target::Intent(id), verb, say(verb)).await.unwrap_or_else(|e| panic!("{verb}: {e}"))
}

/// Why an act with the usual words is not possible.
pub async fn cannot(ledger: &Ledger, person: &Person, id: Uuid, verb: &str) -> ActError {
    match act(ledger, person, Target::Intent(id), verb, say(verb)).await {
        Err(error) => error,
        Ok(done) => panic!("{verb} was possible: {done:?}"),
    }
}

/// The open escalation of an intent.
pub async fn escalation(ledger: &Ledger, id: Uuid) -> Uuid {
    sqlx::query_scalar("select id from settled.escalations where intent_id = $1 and closed_at is null")
        .bind(id)
        .fetch_one(ledger.pool())
        .await
        .unwrap()
}

/// One step of the loop that applies decisions; how many it applied.
pub async fn decide(ledger: &Ledger) -> usize {
    let mut decider = Decider {
        pool: ledger.pool().clone(),
        fleet: ledger.fleet(),
        clock: Arc::clone(&ledger.clock) as Arc<_>,
        metrics: Metrics::new(),
    };
    match decider.step().await.unwrap() {
        Progress::Idle => 0,
        Progress::Worked(applied) => applied,
    }
}

/// What came of the newest decision.
pub async fn decision_result(ledger: &Ledger, id: Uuid) -> Option<String> {
    sqlx::query_scalar(
        "select result from settled.decisions where intent_id = $1 order by made_at desc, id desc limit 1",
    )
    .bind(id)
    .fetch_one(ledger.pool())
    .await
    .unwrap()
}

/// How many rows of the journal tell of acts of people about an intent.
pub async fn acts(ledger: &Ledger, id: Uuid) -> Vec<String> {
    let rows = ledger.journal(id, "act").await;
    rows.into_iter()
        .filter(|(actor, _)| !actor.starts_with("producer:"))
        .map(|(_, data)| data["act"].as_str().unwrap().to_owned())
        .collect()
}
