//! The dialogue with a relay: what every kind of ending means, and that the end of the message is held back.

use serde_json::json;
use settled::domain::outcome::{DoubtKind, Outcome, Proof, Stage};

use crate::support::{
    gates::TestGate,
    mail::{RECIPIENT, bytes, channel, destination, outgoing, payload, send},
    relay::{Act, Relay, Speaks},
};
use settled::channels::Channel;

fn say(text: &str) -> Act {
    Act::Say(text.to_owned())
}

fn not_sent(proof: Proof) -> Outcome {
    Outcome::NotSent { proof, retry_after: None }
}

fn deferred() -> Outcome {
    Outcome::NotSent { proof: Proof::Deferred, retry_after: Some(300) }
}

#[tokio::test]
async fn a_mail_arrives_byte_for_byte_and_the_reply_names_it() {
    let mut relay = Relay::start(Speaks::Plain, []).await;
    let channel = channel(&relay, Speaks::Plain, json!({}));
    let text = ".\r\n..\r\nMAIL FROM:<e@x.test>\r\n.hidden\nlast";
    let intent = outgoing(&json!({"to": RECIPIENT, "subject": "Invoice INV-2291", "text": text}));
    let prepared = channel.prepare(&intent).unwrap();
    let wanted = bytes(&prepared).to_vec();
    let gate = TestGate::open();
    let ended = channel.send(prepared, &intent, gate.clone()).await;
    assert_eq!(ended.outcome, Outcome::Sent { provider_id: Some("4F2A31C0D2".to_owned()) });
    let heard = relay.heard().await;
    assert_eq!(heard.mail(), wanted);
    assert_eq!(heard.commands.iter().filter(|line| line.starts_with("RCPT")).count(), 1);
    assert_eq!(heard.command("EHLO"), Some("EHLO settled.test"));
    assert_eq!(gate.asked(), 1);
    assert_eq!(ended.report.stage, Stage::Replied);
    assert_eq!(ended.report.code, Some(250));
    assert_eq!(ended.report.bytes_handed, heard.data.len() as u64);
    assert_eq!(ended.report.bytes_needed, heard.data.len() as u64);
    assert_eq!(ended.report.closed.as_deref(), Some("closed"));
    assert_eq!(ended.report.peer, Some(relay.address.to_string()));
}

#[tokio::test]
async fn the_envelope_carries_the_key_where_the_relay_offers_dsn() {
    let mut relay = Relay::start(Speaks::Plain, []).await;
    send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    let heard = relay.heard().await;
    let mail = heard.command("MAIL").unwrap();
    assert!(mail.starts_with("MAIL FROM:<billing@example.test> SIZE="), "{mail}");
    assert!(mail.ends_with(" RET=HDRS ENVID=0f1e2d3c4b5a69788796a5b4c3d2e1f0"), "{mail}");
    assert_eq!(heard.command("RCPT"), Some("RCPT TO:<ap@acme.test> NOTIFY=FAILURE,DELAY ORCPT=rfc822;ap@acme.test"));

    let mut plain = Relay::start(Speaks::Plain, [("EHLO", say("250 relay.test"))]).await;
    send(&channel(&plain, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    let heard = plain.heard().await;
    assert_eq!(heard.command("MAIL"), Some("MAIL FROM:<billing@example.test>"));
    assert_eq!(heard.command("RCPT"), Some("RCPT TO:<ap@acme.test>"));
}

#[tokio::test]
async fn a_negative_reply_at_any_step_is_a_proof_and_never_a_doubt() {
    let table = [
        ("greeting", "554 no service", not_sent(Proof::Parked)),
        ("greeting", "451 later", not_sent(Proof::Throttled)),
        ("EHLO", "554 no", not_sent(Proof::Parked)),
        ("EHLO", "421 closing", not_sent(Proof::Throttled)),
        ("MAIL", "451 later", Outcome::NotSent { proof: Proof::Throttled, retry_after: Some(300) }),
        ("MAIL", "452 too much for now", deferred()),
        ("MAIL", "421 closing", not_sent(Proof::Throttled)),
        ("MAIL", "554 no", Outcome::Refused { code: 554 }),
        ("MAIL", "530 authenticate first", not_sent(Proof::Parked)),
        ("RCPT", "450 greylisted", deferred()),
        ("RCPT", "421 closing", not_sent(Proof::Deferred)),
        ("RCPT", "550 no such user", Outcome::Refused { code: 550 }),
        ("DATA", "451 later", deferred()),
        ("DATA", "554 no", Outcome::Refused { code: 554 }),
        ("dot", "421 closing", not_sent(Proof::Deferred)),
        ("dot", "451 later", deferred()),
        ("dot", "554 spam", Outcome::Refused { code: 554 }),
    ];
    for (step, text, wanted) in table {
        let mut relay = Relay::start(Speaks::Plain, [(step, say(text))]).await;
        let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
        assert_eq!(ended.outcome, wanted, "{step} {text}");
        assert_eq!(ended.report.code.map(|code| code.to_string()).as_deref(), text.get(..3), "{step}");
        let heard = relay.heard().await;
        assert_eq!(heard.dot, step == "dot", "{step} {text}");
        assert_eq!(ended.report.bytes_handed, heard.data.len() as u64, "{step} {text}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_before_the_dot_proves_that_nothing_was_taken() {
    for (step, proof, stage) in [
        ("greeting", Proof::NotConnected, Stage::Envelope),
        ("EHLO", Proof::NotConnected, Stage::Envelope),
        ("MAIL", Proof::Incomplete, Stage::Envelope),
        ("RCPT", Proof::Incomplete, Stage::Envelope),
        ("DATA", Proof::Incomplete, Stage::Envelope),
    ] {
        let mut relay = Relay::start(Speaks::Plain, [(step, Act::Close)]).await;
        let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
        assert_eq!(ended.outcome, not_sent(proof), "{step}");
        assert_eq!(ended.report.stage, stage, "{step}");
        assert_eq!(ended.report.closed.as_deref(), Some("reset"), "{step}");
        assert!(relay.heard().await.data.is_empty(), "{step}");
    }
}

#[tokio::test]
async fn a_message_cut_in_its_middle_is_incomplete_whatever_the_relay_says_about_it() {
    let big = json!({"to": RECIPIENT, "subject": "Invoice INV-2291", "text": "0123456789abcdef\n".repeat(500_000)});
    let mut relay = Relay::start(Speaks::Plain, [("body", Act::ResetAfter(4096))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&big), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::Incomplete));
    assert_eq!(ended.report.stage, Stage::Body);
    assert!(ended.report.bytes_handed < ended.report.bytes_needed, "{:?}", ended.report);
    assert!(!relay.heard().await.dot);
}

#[tokio::test]
async fn a_relay_that_speaks_inside_the_message_does_not_get_its_end() {
    let mut relay =
        Relay::start(Speaks::Plain, [("DATA", Act::Raw(b"354 go on\r\n250 taken already\r\n".to_vec()))]).await;
    let gate = TestGate::open();
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), gate).await;
    assert_eq!(ended.outcome, not_sent(Proof::Incomplete));
    assert!(!relay.heard().await.dot);

    let refusal = Act::Raw(b"354 go on\r\n552 too much\r\n".to_vec());
    let mut relay = Relay::start(Speaks::Plain, [("DATA", refusal)]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Refused { code: 552 });
    assert!(!relay.heard().await.dot);
}

#[tokio::test]
async fn after_the_dot_only_a_readable_reply_settles_anything() {
    for (act, doubt) in [
        (Act::Close, DoubtKind::ConnectionLost),
        (say("OK, fine"), DoubtKind::UnclearReply),
        (say("354 more?"), DoubtKind::UnclearReply),
        (Act::Raw(b"250-first\r\n451 second\r\n".to_vec()), DoubtKind::UnclearReply),
        (Act::Raw([b"250 ".as_slice(), &[b'x'; 9000]].concat()), DoubtKind::UnclearReply),
    ] {
        let mut relay = Relay::start(Speaks::Plain, [("dot", act.clone())]).await;
        let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
        assert_eq!(ended.outcome, Outcome::Ambiguous { doubt }, "{act:?}");
        assert_eq!(ended.report.closed.as_deref(), Some("reset"), "{act:?}");
        assert_eq!(ended.report.bytes_handed, ended.report.bytes_needed);
        assert!(relay.heard().await.dot);
    }
}

#[tokio::test]
async fn silence_after_the_dot_is_in_doubt_when_its_own_limit_is_over() {
    let mut relay = Relay::start(Speaks::Plain, [("dot", Act::Silent)]).await;
    let mut destination = destination(relay.address, json!({}));
    destination["timeouts"]["final_dot"] = "200ms".into();
    let ended = send(&crate::support::mail::build(destination), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Ambiguous { doubt: DoubtKind::NoReply });
    assert_eq!(ended.report.stage, Stage::Handed);
    assert!(relay.heard().await.dot);
}

#[tokio::test]
async fn a_reply_without_text_is_a_reply() {
    let relay = Relay::start(Speaks::Plain, [("dot", say("250"))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Sent { provider_id: None });
}

#[tokio::test]
async fn data_answered_with_250_gets_no_message() {
    let mut relay = Relay::start(Speaks::Plain, [("DATA", say("250 Ok"))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::Incomplete));
    assert_eq!(ended.report.bytes_handed, 0);
    assert!(relay.heard().await.data.is_empty());
}

#[tokio::test]
async fn replies_shifted_by_one_never_become_a_success() {
    let mut relay = Relay::start(Speaks::Plain, [("EHLO", Act::Raw(b"250 relay.test\r\n250 Ok\r\n".to_vec()))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::Incomplete));
    assert!(relay.heard().await.data.is_empty());
}

#[tokio::test]
async fn the_dot_is_not_written_when_the_gate_says_no() {
    for gate in [TestGate::without_last_bytes(), TestGate::closing_at_the_last()] {
        let mut relay = Relay::start(Speaks::Plain, []).await;
        let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), gate.clone()).await;
        assert_eq!(ended.outcome, not_sent(Proof::SelfStopped));
        assert_eq!(ended.report.stage, Stage::AtGate);
        assert_eq!(ended.report.bytes_handed + 5, ended.report.bytes_needed);
        assert_eq!(ended.report.closed.as_deref(), Some("reset"));
        assert_eq!(gate.asked(), 1);
        let heard = relay.heard().await;
        assert!(!heard.dot);
        assert!(!heard.data.ends_with(b"\r\n"));
    }
}

#[tokio::test]
async fn nothing_is_dialled_when_the_gate_is_closed_from_the_start() {
    let relay = Relay::start(Speaks::Plain, []).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::closed()).await;
    assert_eq!(ended.outcome, not_sent(Proof::SelfStopped));
    assert_eq!(ended.report.stage, Stage::Prepared);
    assert_eq!(ended.report.peer, None);
}

#[tokio::test]
async fn a_refused_connection_and_a_forbidden_address_are_proofs() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = crate::support::mail::build(destination(gone, json!({})));
    let ended = send(&dead, &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::NotConnected));
    assert_eq!(ended.report.stage, Stage::Connect);

    let mut forbidden = destination(gone, json!({}));
    forbidden["allow_addresses"] = json!([]);
    let ended = send(&crate::support::mail::build(forbidden), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::NotConnected));
    assert!(ended.report.cause.unwrap().contains("loopback"));
}

#[tokio::test]
async fn a_dropped_attempt_leaves_nothing_behind() {
    let mut relay = Relay::start(Speaks::Plain, [("RCPT", Act::Silent)]).await;
    let channel = channel(&relay, Speaks::Plain, json!({}));
    let intent = outgoing(&payload());
    let cancelled =
        tokio::time::timeout(std::time::Duration::from_millis(300), send(&channel, &intent, TestGate::open())).await;
    assert!(cancelled.is_err());
    let heard = relay.heard().await;
    assert!(heard.data.is_empty() && heard.command("QUIT").is_none());
}

#[tokio::test]
async fn what_is_recorded_of_a_reply_does_not_name_the_recipient() {
    let relay = Relay::start(Speaks::Plain, [("RCPT", say("550 5.1.1 <AP@acme.test>: no such user"))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.report.excerpt.as_deref(), Some("5.1.1 <(recipient)>: no such user"));
}
