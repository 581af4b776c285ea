//! A server that answers a webhook or a look-up with anything.

use std::{cell::Cell, sync::Arc};

use serde_json::{Value, json};
use settled::{
    channels::{self, Channel, wire::AlwaysOpen},
    config::destination::Destination,
    domain::{
        outcome::{Outcome, Proof},
        question::{Answer, Probe, Question, Role, Seen},
    },
    look_up::{self, LookUp},
};

use super::{
    KEY, REFERENCE, holds,
    texts::{at, outgoing},
    wire::{Downstream, Heard, Speaks, turns},
};

thread_local! {
    static WEBHOOK: Downstream<[Arc<dyn Channel>; 2]> = const { Downstream::new() };
    static LISTING: Downstream<Arc<dyn LookUp>> = const { Downstream::new() };
}

/// A reply, head and all.
pub fn reply(bytes: &[u8]) -> &'static str {
    said(bytes)
}

/// A body under a proper head, whose status and type the first two bytes choose.
pub fn answer(bytes: &[u8]) -> &'static str {
    let [status, kind, body @ ..] = bytes else { return "nothing" };
    let status =
        ["200 OK", "202 Accepted", "409 Conflict", "429 Too Many Requests", "500 Oops"][usize::from(*status) % 5];
    let kind = ["application/json", "text/html", "text/plain", "application/json\r\nContent-Encoding: gzip"]
        [usize::from(*kind) % 4];
    said(&headed(status, kind, body))
}

fn headed(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Both kinds of rules read the same reply.
fn said(reply: &[u8]) -> &'static str {
    let mut words = [""; 2];
    for (strict, word) in [false, true].into_iter().zip(&mut words) {
        let outgoing = outgoing(json!({"amount": 1}).to_string(), "");
        let turns = [reply.to_vec()];
        let (outcome, heard) = WEBHOOK.with(|webhook| {
            webhook.play(webhooks, Speaks::Server, &turns, async |channels: &[Arc<dyn Channel>; 2]| {
                let channel = &channels[usize::from(strict)];
                let prepared = channel.prepare(&outgoing).expect("it can be sent");
                channel.send(prepared, &outgoing, Arc::new(AlwaysOpen)).await.outcome
            })
        });
        assert_eq!(heard.given.len(), 1, "one request, once");
        let status =
            |class: char| ["HTTP/1.1 ", "HTTP/1.0 "].iter().any(|v| holds_line(&turns[0], &format!("{v}{class}")));
        *word = outcome.as_str();
        match outcome {
            Outcome::Sent { .. } => assert!(status('2'), "sent, and no status said so"),
            Outcome::Refused { .. } => assert!(status('4'), "refused, and no status said so"),
            Outcome::NotSent { proof, .. } => {
                let said_no = matches!(proof, Proof::Deferred | Proof::Throttled | Proof::Parked);
                assert!(said_no, "{proof:?} after the whole request was read");
                assert!(status('4'), "not sent, and no status said so");
            }
            Outcome::Ambiguous { .. } => {}
        }
    }
    words[0]
}

fn holds_line(bytes: &[u8], start: &str) -> bool {
    bytes.windows(start.len()).any(|part| part == start.as_bytes())
}

fn webhooks(port: u16) -> [Arc<dyn Channel>; 2] {
    let build = |more: Value| {
        let mut webhook = json!({"url": format!("http://127.0.0.1:{port}/in")});
        webhook.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let destination = json!({"name": "hook", "channel": "webhook", "allow_addresses": ["127.0.0.0/8"],
            "webhook": webhook, "limits": {"answer_bytes": 4096},
            "timeouts": {"connect": "2s", "body": "2s", "reply": "2s", "answer": "2s"}});
        channels::registry::build(&destination_of(destination)).unwrap()
    };
    let sent_when = json!({"status": [200, 202], "json": {"pointer": "/ok", "equals": true}});
    [build(json!({})), build(json!({"reply": {"sent_when": sent_when, "provider_id": "/data/id"}}))]
}

fn destination_of(value: Value) -> Destination {
    serde_json::from_value(value).unwrap()
}

/// Pages of a listing, each under a proper head; or, where the first byte is `R`, heads and all.
pub fn listing(bytes: &[u8]) -> &'static str {
    let (raw, bytes) = match bytes {
        [b'R', rest @ ..] => (true, rest),
        whole => (false, whole),
    };
    let pages = turns(bytes);
    let said: Vec<Vec<u8>> =
        if raw { pages } else { pages.iter().map(|page| headed("200 OK", "application/json", page)).collect() };
    let question = question();
    let (answer, heard) = LISTING.with(|listing| {
        listing.play(look_up, Speaks::Server, &said, async |look_up: &Arc<dyn LookUp>| {
            look_up.ask(&question).await.printable()
        })
    });
    check(&question, &answer, &heard, raw);
    word(&answer.seen[0])
}

/// What was seen, in a word.
pub fn word(seen: &Seen) -> &'static str {
    match seen {
        Seen::Hits { .. } => "hits",
        Seen::Nothing => "nothing",
        Seen::CannotTell { .. } => "cannot_tell",
    }
}

fn check(question: &Question, answer: &Answer, heard: &Heard, raw: bool) {
    assert_eq!(answer.seen.len(), question.probes.len());
    let bodies: Vec<Option<Value>> = heard.given.iter().map(|page| body(page)).collect();
    for (probe, seen) in question.probes.iter().zip(&answer.seen) {
        match seen {
            Seen::Hits { hits } if !raw => {
                assert!(!hits.is_empty());
                let said = bodies.iter().flatten().any(|body| says(body, &probe.key) || says(body, &probe.reference));
                assert!(said, "{:?} was found, and no page names it", probe.role);
            }
            Seen::Nothing if !raw => {
                assert!(!heard.given.is_empty() && bodies.iter().all(Option::is_some), "nothing, by what is no JSON");
                let listed =
                    |body: &Value| matches!(body.pointer("/messages"), Some(Value::Array(_) | Value::Object(_)));
                assert!(bodies.iter().flatten().all(listed), "nothing, by a page without a list");
                let named = bodies.iter().flatten().filter_map(|body| body.pointer("/messages"));
                let own = Cell::new(false);
                named.for_each(|list| own.set(own.get() || at_key(list, &probe.key)));
                assert!(!own.get(), "nothing, and an item carries the key");
            }
            Seen::Nothing => assert!(holds_line(&heard.given.concat(), "HTTP/1."), "nothing, by what is no HTTP"),
            Seen::Hits { .. } | Seen::CannotTell { .. } => {}
        }
    }
}

fn body(page: &[u8]) -> Option<Value> {
    let start = page.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    serde_json::from_slice(&page[start..]).ok()
}

/// Some text of the page holds the name.
fn says(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => holds(text.as_bytes(), name),
        Value::Array(list) => list.iter().any(|each| says(each, name)),
        Value::Object(members) => members.values().any(|each| says(each, name)),
        Value::Number(number) => number.to_string() == name,
        Value::Null | Value::Bool(_) => false,
    }
}

fn at_key(list: &Value, key: &str) -> bool {
    let carries = |item: &Value| item.pointer("/key").and_then(Value::as_str) == Some(key);
    match list {
        Value::Array(items) => items.iter().any(carries),
        item @ (Value::Object(_) | Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null) => carries(item),
    }
}

fn look_up(port: u16) -> Arc<dyn LookUp> {
    let url = format!("http://127.0.0.1:{port}/messages");
    let destination = json!({"name": "hook", "channel": "webhook", "allow_addresses": ["127.0.0.0/8"],
        "webhook": {"url": &url},
        "timeouts": {"connect": "2s", "body": "2s", "reply": "2s", "answer": "2s"},
        "look_up": {"kind": "http", "lag": "1s", "horizon": "1d", "http": {
            "per": "window", "url": url, "query": {"from": "{from:%s}"}, "page_bytes": 65536,
            "answer": {"items": "/messages", "key_at": "/key", "reference_at": "/reference", "recipient_at": "/to",
                       "id_at": "/id", "time_at": "/at", "status_at": "/status", "attempt_at": "/attempt",
                       "occurrence_at": "/occurrence"},
            "pages": {"next_at": "/next", "full_page": 100}}}});
    look_up::registry::build(&destination_of(destination)).unwrap().unwrap()
}

/// One in doubt and a name that cannot exist.
pub fn question() -> Question {
    let probe = |role, key: &str, reference: &str| Probe {
        role,
        key: key.to_owned(),
        reference: reference.to_owned(),
        spelled: None,
        occurrence: 1,
        recipient: "ap@acme.test".to_owned(),
        sent_from: at(0),
        sent_until: at(60),
    };
    Question {
        probes: vec![
            probe(Role::Subject, KEY, REFERENCE),
            probe(Role::Impossible, "00000000000000000000000000000000", "zzz-0000"),
        ],
        now: at(3600),
    }
}
