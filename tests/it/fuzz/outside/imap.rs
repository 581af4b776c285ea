//! A mailbox server that says anything.

use std::io::Write;

use serde_json::json;
use settled::{
    domain::question::Seen,
    look_up::{LookUp, imap::Imap},
};

use super::{
    holds,
    http::{question, word},
    wire::{Downstream, Speaks, turns},
};

thread_local! {
    static MAILBOX: Downstream<(Imap, tempfile::NamedTempFile)> = const { Downstream::new() };
}

/// The greeting and an answer to each command; `%T` is the tag.
pub fn mailbox(bytes: &[u8]) -> &'static str {
    let question = question();
    let (answer, heard) = MAILBOX.with(|mailbox| {
        mailbox.play(look_up, Speaks::Mailbox, &turns(bytes), async |(imap, _): &(Imap, _)| {
            imap.ask(&question).await.printable()
        })
    });
    let said = heard.given.concat();
    assert_eq!(answer.seen.len(), question.probes.len());
    for (probe, seen) in question.probes.iter().zip(&answer.seen) {
        match seen {
            Seen::Hits { hits } => {
                assert!(!hits.is_empty());
                // Encoded words and quoting may stand between; the name itself is hexadecimal digits or a reference.
                let named = holds(&said, &probe.key) || holds(&said, &probe.reference) || holds(&said, "=?");
                assert!(named, "{:?} was found, and nothing names it", probe.role);
            }
            Seen::Nothing => {
                let done = heard.given.iter().filter(|turn| done(turn)).count();
                assert!(done >= 2, "nothing, and no command was answered to its end");
                assert!(holds(&said, "exists") && holds(&said, "uidvalidity"), "nothing, by what is no mailbox");
            }
            Seen::CannotTell { .. } => {}
        }
    }
    word(&answer.seen[0])
}

/// A turn with some tagged OK.
fn done(turn: &[u8]) -> bool {
    turn.split(|byte| *byte == b'\n').any(|line| {
        let mut words = line.split(|byte| *byte == b' ');
        words.next().is_some_and(|tag| tag != b"*") && words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"OK"))
    })
}

fn look_up(port: u16) -> (Imap, tempfile::NamedTempFile) {
    let mut password = tempfile::NamedTempFile::new().unwrap();
    writeln!(password, "s3cret").unwrap();
    let imap = json!({"host": "127.0.0.1", "port": port, "tls": "none", "username": "audit",
        "password": {"file": password.path()}, "account": "audit@127.0.0.1"});
    let destination = json!({"name": "mail", "channel": "smtp", "allow_addresses": ["127.0.0.0/8"],
        "timeouts": {"connect": "2s", "command": "2s", "body": "2s"},
        "look_up": {"kind": "imap", "lag": "1m", "horizon": "30days", "imap": imap}});
    (Imap::build(&serde_json::from_value(destination).unwrap()).unwrap(), password)
}
