//! A relay that says anything.

use std::sync::Arc;

use serde_json::json;
use settled::{
    channels::{Channel, smtp::Smtp, wire::AlwaysOpen},
    domain::outcome::Outcome,
};

use super::{
    texts::outgoing,
    wire::{Downstream, Speaks, turns},
};

thread_local! {
    static RELAY: Downstream<Smtp> = const { Downstream::new() };
}

/// Replies of a relay, one turn for each line that it is told and one for the whole message.
pub fn relay(bytes: &[u8]) -> &'static str {
    let payload = json!({"to": "ap@acme.test", "subject": "Invoice INV-2291", "text": "inv-2291"}).to_string();
    let outgoing = outgoing(payload, "ap@acme.test");
    let (ended, heard) = RELAY.with(|relay| {
        relay.play(channel, Speaks::Relay, &turns(bytes), async |channel: &Smtp| {
            let prepared = channel.prepare(&outgoing).expect("it can be sent");
            channel.send(prepared, &outgoing, Arc::new(AlwaysOpen)).await
        })
    });
    let begins = |turn: &[u8], digits: &[u8]| turn.first().is_some_and(|first| digits.contains(first));
    match &ended.outcome {
        Outcome::Sent { .. } => {
            let answer = heard.answer.expect("sent means that the message was answered");
            assert!(begins(&answer, b"2"), "sent, and the relay said no such thing: {answer:?}");
        }
        Outcome::Refused { .. } => {
            assert!(heard.given.iter().any(|turn| begins(turn, b"5")), "refused, and the relay never said no");
        }
        Outcome::NotSent { .. } => {
            let answer = heard.answer.unwrap_or_default();
            assert!(!heard.whole_message || begins(&answer, b"45"), "not sent, and the relay has the whole message");
        }
        Outcome::Ambiguous { .. } => {
            // Whether the relay has read it is its own affair.
            let (handed, needed) = (ended.report.bytes_handed, ended.report.bytes_needed);
            assert_eq!(handed, needed, "in doubt, and the message was not handed over");
        }
    }
    ended.outcome.as_str()
}

fn channel(port: u16) -> Smtp {
    let destination = json!({"name": "mail", "channel": "smtp", "allow_addresses": ["127.0.0.0/8"],
        "smtp": {"host": "127.0.0.1", "port": port, "tls": "none", "from": "billing@example.test",
                 "hello_name": "settled.test"},
        "timeouts": {"connect": "2s", "tls": "2s", "command": "2s", "body": "2s", "final_dot": "2s"}});
    Smtp::build(&serde_json::from_value(destination).unwrap()).unwrap()
}
