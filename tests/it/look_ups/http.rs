//! What the tests of the declarative look-up share.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use settled::{
    config::destination::Destination,
    domain::question::{Answer, Hit, Probe, Question, Role, Seen},
    look_up::{LookUp, http::Http},
};

pub const SUBJECT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub const ELDER: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
pub const YOUNGER: &str = "cccccccccccccccccccccccccccccccc";
pub const NOBODY: &str = "dddddddddddddddddddddddddddddddd";

pub fn now() -> DateTime<Utc> {
    DateTime::parse_from_rfc3339("2025-03-04T12:00:00Z").unwrap().to_utc()
}

/// A destination that is asked by `http`, on this machine.
pub fn destination(http: &Value) -> Destination {
    serde_json::from_value(json!({
        "name": "partner",
        "channel": "webhook",
        "webhook": {},
        "allow_addresses": ["127.0.0.0/8"],
        "timeouts": { "connect": "2s", "reply": "2s" },
        "look_up": { "kind": "http", "lag": "10s", "horizon": "1d", "http": http },
    }))
    .unwrap()
}

pub fn build(http: &Value) -> Http {
    Http::build(&destination(http)).unwrap()
}

pub fn probe(role: Role, key: &str, reference: &str) -> Probe {
    let age = match role {
        Role::Elder => 60,
        Role::Subject => 40,
        Role::Younger => 20,
        Role::Impossible => 40,
    };
    Probe {
        role,
        key: key.to_owned(),
        reference: reference.to_owned(),
        spelled: None,
        occurrence: 1,
        recipient: "+4915112345678".to_owned(),
        sent_from: now() - TimeDelta::minutes(age),
        sent_until: now() - TimeDelta::minutes(age - 5),
    }
}

pub fn subject(reference: &str) -> Question {
    Question { probes: vec![probe(Role::Subject, SUBJECT, reference)], now: now() }
}

/// The subject with all its controls.
pub fn full() -> Question {
    Question {
        probes: vec![
            probe(Role::Subject, SUBJECT, "inv-229"),
            probe(Role::Elder, ELDER, "inv-100"),
            probe(Role::Younger, YOUNGER, "inv-300"),
            probe(Role::Impossible, NOBODY, "inv-999"),
        ],
        now: now(),
    }
}

pub async fn ask(http: &Value, question: &Question) -> Answer {
    build(http).ask(question).await
}

pub async fn ask_subject(http: &Value) -> Seen {
    ask(http, &subject("inv-229")).await.seen.remove(0)
}

#[track_caller]
pub fn hits(seen: &Seen) -> &[Hit] {
    match seen {
        Seen::Hits { hits } => hits,
        Seen::Nothing | Seen::CannotTell { .. } => panic!("not found: {seen:?}"),
    }
}

/// Asserts that nothing is concluded, for a reason that has `words` in it.
#[track_caller]
pub fn cannot_tell(seen: &Seen, words: &str) {
    match seen {
        Seen::CannotTell { why } => assert!(why.contains(words), "{why}"),
        Seen::Hits { .. } | Seen::Nothing => panic!("concluded: {seen:?}"),
    }
}
