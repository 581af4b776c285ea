//! The audit mailbox: what is there is found by key, and what was not read to the end is never taken for absence.

use std::io::Write;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use settled::{
    config::destination::Destination,
    domain::question::{AccountSeen, Answer, Hit, Probe, Question, Role, Seen},
    look_up::{LookUp, imap::Imap},
};

use crate::support::imap_script::{Fault, ImapServer, Stored};

pub const KEY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
pub const ELDER: &str = "11111111111111111111111111111111";
const DATE: &str = " 4-Mar-2026 05:06:09 +0000";

pub fn stored(uid: u32, fields: &str) -> Stored {
    Stored { uid, date: DATE.to_owned(), fields: fields.to_owned() }
}

pub fn ours(uid: u32, key: &str, reference: &str) -> Stored {
    stored(
        uid,
        &format!(
            "Message-ID: <{key}@example.test>\r\nX-Settled-Key: {key}\r\nX-Settled-Reference: {reference}\r\nX-Settled-Attempt: 1\r\nTo: ap@acme.test\r\n"
        ),
    )
}

pub fn probe(role: Role, key: &str, reference: &str) -> Probe {
    let sent: DateTime<Utc> = "2026-03-04T05:06:07Z".parse().unwrap();
    Probe {
        role,
        key: key.to_owned(),
        reference: reference.to_owned(),
        spelled: None,
        occurrence: 1,
        recipient: "ap@acme.test".to_owned(),
        sent_from: sent,
        sent_until: sent,
    }
}

pub fn question(probes: Vec<Probe>) -> Question {
    Question { probes, now: "2026-03-04T06:00:00Z".parse().unwrap() }
}

pub fn subject() -> Question {
    question(vec![probe(Role::Subject, KEY, "inv-2291")])
}

pub fn imap(server: &ImapServer, more: Value) -> (Imap, tempfile::NamedTempFile) {
    let (destination, file) = destination(server, more);
    (Imap::build(&destination).unwrap(), file)
}

pub fn destination(server: &ImapServer, more: Value) -> (Destination, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "s3cret").unwrap();
    let mut section = json!({"host": "127.0.0.1", "port": server.address.port(), "tls": "none", "username": "audit",
        "password": {"file": file.path()}, "account": "audit@127.0.0.1"});
    section.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let destination: Destination = serde_json::from_value(json!({
        "name": "mail", "channel": "smtp", "allow_addresses": ["127.0.0.0/8"],
        "timeouts": {"connect": "2s", "command": "500ms", "body": "2s"},
        "look_up": {"kind": "imap", "lag": "1m", "horizon": "30days", "imap": section},
    }))
    .unwrap();
    (destination, file)
}

async fn ask(messages: Vec<Stored>, fault: Fault, more: Value, question: &Question) -> (Answer, Vec<String>) {
    let mut server = ImapServer::start(messages, fault).await;
    let (imap, _file) = imap(&server, more);
    let answer = imap.ask(question).await;
    drop(imap);
    (answer, server.commands().await)
}

pub fn hits(seen: &Seen) -> &[Hit] {
    match seen {
        Seen::Hits { hits } => hits,
        Seen::Nothing | Seen::CannotTell { .. } => panic!("no hit: {seen:?}"),
    }
}

#[tokio::test]
async fn one_listing_answers_for_the_subject_and_its_controls() {
    let messages = vec![ours(3, ELDER, "INV-1"), stored(5, "To: x@y.test\r\n"), ours(8, KEY, "INV-2291")];
    let asked = question(vec![
        probe(Role::Subject, KEY, "inv-2291"),
        probe(Role::Elder, ELDER, "inv-1"),
        probe(Role::Impossible, "ffffffffffffffffffffffffffffffff", "inv-none"),
    ]);
    let (answer, commands) = ask(messages, Fault::Nothing, json!({}), &asked).await;
    let [subject, elder, impossible] = answer.seen.as_slice() else { panic!() };
    assert_eq!(hits(subject).len(), 1);
    let hit = &hits(subject)[0];
    assert_eq!(hit.id.as_deref(), Some("77/8"));
    assert_eq!((hit.key.as_deref(), hit.reference.as_deref(), hit.attempt), (Some(KEY), Some("INV-2291"), Some(1)));
    assert_eq!(hit.at, Some("2026-03-04T05:06:09Z".parse().unwrap()));
    assert!(!hit.other_recipient);
    assert_eq!(hits(elder)[0].id.as_deref(), Some("77/3"));
    assert_eq!(*impossible, Seen::Nothing);
    assert!(answer.same_answer);
    assert_eq!(answer.account, AccountSeen::Matches { identity: "audit@127.0.0.1".to_owned() });
    assert_eq!((answer.pages, answer.digest.len()), (1, 64));
    assert!(answer.query.contains("UIDVALIDITY 77") && answer.query.contains("UID FETCH 1:*"), "{}", answer.query);
    assert!(!answer.query.contains("s3cret"));
    assert_eq!(commands.first().map(String::as_str), Some("LOGIN \"audit\" \"s3cret\""));
}

#[tokio::test]
async fn case_096_asking_changes_nothing_in_the_mailbox() {
    let (_, commands) = ask(vec![ours(8, KEY, "INV-2291")], Fault::Nothing, json!({}), &subject()).await;
    for command in &commands {
        let allowed = ["CAPABILITY", "LOGIN ", "EXAMINE ", "UID FETCH ", "NOOP", "LOGOUT"];
        assert!(allowed.iter().any(|verb| command.starts_with(verb)), "{command}");
        assert!(!command.contains("BODY[") && !command.contains("SEARCH"), "{command}");
    }
    assert_eq!(commands.len(), 4, "{commands:?}");
}

#[tokio::test]
async fn case_093_a_near_miss_is_nothing_and_the_reference_alone_is_told_as_such() {
    let near = vec![ours(1, &format!("{KEY}0"), "INV-22910"), ours(2, "2222", "INV-229")];
    let (answer, _) = ask(near, Fault::Nothing, json!({}), &subject()).await;
    assert_eq!(answer.seen, [Seen::Nothing]);

    let (answer, _) = ask(vec![ours(4, ELDER, "inv-2291")], Fault::Nothing, json!({}), &subject()).await;
    let hit = &hits(&answer.seen[0])[0];
    assert_eq!((hit.key.as_deref(), hit.reference.as_deref()), (Some(ELDER), Some("inv-2291")));
}

#[tokio::test]
async fn case_083_a_folded_header_is_found() {
    let folded = format!("X-Settled-Key:\r\n\t{KEY}\r\nX-Settled-Reference:\r\n  INV-2291\r\nSubject: x\r\n");
    let (answer, _) = ask(vec![stored(1, &folded)], Fault::Nothing, json!({}), &subject()).await;
    assert_eq!(hits(&answer.seen[0])[0].reference.as_deref(), Some("INV-2291"));
}

#[tokio::test]
async fn case_087_a_rewritten_message_id_does_not_hide_our_key() {
    let fields = format!("Message-ID: <0102abc-000000@relay.test>\r\nX-Settled-Key: {KEY}\r\n");
    let (answer, _) = ask(vec![stored(1, &fields)], Fault::Nothing, json!({}), &subject()).await;
    assert_eq!(hits(&answer.seen[0])[0].key.as_deref(), Some(KEY));
    let kept = format!("Message-ID: <{KEY}@example.test>\r\n");
    let (answer, _) = ask(vec![stored(1, &kept)], Fault::Nothing, json!({}), &subject()).await;
    assert_eq!(hits(&answer.seen[0])[0].key.as_deref(), Some(KEY));
}

#[tokio::test]
async fn two_copies_are_two_hits() {
    let (answer, _) =
        ask(vec![ours(1, KEY, "INV-2291"), ours(9, KEY, "INV-2291")], Fault::Nothing, json!({}), &subject()).await;
    let ids: Vec<_> = hits(&answer.seen[0]).iter().filter_map(|hit| hit.id.as_deref()).collect();
    assert_eq!(ids, ["77/1", "77/9"]);
}

#[tokio::test]
async fn an_empty_mailbox_holds_nothing() {
    let (answer, _) = ask(Vec::new(), Fault::Nothing, json!({}), &subject()).await;
    assert_eq!(answer.seen, [Seen::Nothing]);
    assert_eq!(answer.pages, 0);
}

#[tokio::test]
async fn case_095_whatever_is_not_read_to_its_end_is_no_absence() {
    let two = || vec![ours(1, ELDER, "INV-1"), ours(2, "2222", "INV-2")];
    for fault in [
        Fault::NoLogin,
        Fault::NoMailbox,
        Fault::ClosedInExamine,
        Fault::ClosedInFetch(0),
        Fault::ClosedInFetch(1),
        Fault::ClosedInFetch(2),
        Fault::FetchEnds("OK"),
        Fault::FetchEnds("NO"),
        Fault::FetchEnds("BAD"),
        Fault::LeavesOut(1),
        Fault::LeavesOut(2),
        Fault::Expunges,
        Fault::RecreatedInFetch,
        Fault::PlainOnly,
        Fault::Html,
        Fault::PreAuth,
        Fault::Silent,
    ] {
        let mut server = ImapServer::start(two(), fault.clone()).await;
        let (imap, _file) = imap(&server, json!({}));
        let answer = imap.ask(&subject()).await;
        assert!(matches!(answer.seen.as_slice(), [Seen::CannotTell { .. }]), "{fault:?}: {answer:?}");
        let told = serde_json::to_string(&answer).unwrap();
        assert!(!told.contains("s3cret"), "{told}");
        drop(imap);
        server.commands().await;
    }
}

#[tokio::test]
async fn a_window_over_the_cap_cannot_be_judged_but_what_is_found_in_it_counts() {
    let many = |last: Stored| (1..=40).map(|uid| ours(uid, "2222", "INV-2")).chain([last]).collect::<Vec<_>>();
    let cap = json!({"max_messages": 20});
    let (answer, _) = ask(many(ours(41, "3333", "INV-3")), Fault::Nothing, cap.clone(), &subject()).await;
    let [Seen::CannotTell { why }] = answer.seen.as_slice() else { panic!("{answer:?}") };
    assert!(why.contains("20"), "{why}");
    // UIDs come upwards, so the first twenty of a page are read.
    let mut first = many(ours(41, "3333", "INV-3"));
    first[3] = ours(4, KEY, "INV-2291");
    let (answer, _) = ask(first, Fault::Nothing, cap, &subject()).await;
    assert_eq!(hits(&answer.seen[0]).len(), 1);
}

#[tokio::test]
async fn a_large_mailbox_is_read_back_to_the_window_and_no_further() {
    let old =
        |uid| Stored { uid, date: "01-Jan-2026 00:00:00 +0000".to_owned(), fields: "To: x@y.test\r\n".to_owned() };
    let mut messages: Vec<_> = (1..=5000).map(old).collect();
    messages.extend((5001..=5010).map(|uid| ours(uid, "2222", "INV-2")));
    let bounds = json!({"max_messages": 4000});
    let (answer, _) = ask(messages.clone(), Fault::Nothing, bounds.clone(), &subject()).await;
    assert_eq!(answer.seen, [Seen::Nothing]);
    assert_eq!(answer.pages, 2, "{}", answer.query);
    // The same, but with dates that do not rise: an old page says nothing about what lies before it.
    messages[4500].date = "03-Mar-2026 23:00:00 +0000".to_owned();
    let (answer, _) = ask(messages, Fault::Nothing, bounds, &subject()).await;
    assert!(matches!(answer.seen.as_slice(), [Seen::CannotTell { .. }]), "{answer:?}");
}

#[tokio::test]
async fn a_sparse_mailbox_is_read_to_its_first_message() {
    let messages = vec![ours(7, KEY, "INV-2291"), ours(900_000, ELDER, "INV-1")];
    let (answer, _) = ask(messages, Fault::Nothing, json!({}), &subject()).await;
    assert_eq!(hits(&answer.seen[0])[0].id.as_deref(), Some("77/7"));
    assert!(answer.pages < 20, "{}", answer.pages);
}

#[tokio::test]
async fn the_account_is_compared_with_the_one_that_is_meant() {
    let (answer, _) = ask(Vec::new(), Fault::Nothing, json!({"account": "other@127.0.0.1"}), &subject()).await;
    assert_eq!(answer.account, AccountSeen::Differs { seen: "audit@127.0.0.1".to_owned() });
    let (answer, _) = ask(Vec::new(), Fault::Nothing, json!({"account": null}), &subject()).await;
    assert_eq!(answer.account, AccountSeen::NotChecked);
    let (answer, _) = ask(Vec::new(), Fault::NoLogin, json!({}), &subject()).await;
    assert_eq!(answer.account, AccountSeen::NotChecked);
}

#[tokio::test]
async fn a_copy_for_somebody_else_is_told_as_such() {
    let other = stored(1, &format!("X-Settled-Key: {KEY}\r\nX-Settled-Reference: INV-2291\r\nTo: b@acme.test\r\n"));
    let (answer, _) = ask(vec![other], Fault::Nothing, json!({}), &subject()).await;
    assert!(hits(&answer.seen[0])[0].other_recipient);
}
