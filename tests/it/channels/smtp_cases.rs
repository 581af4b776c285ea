//! Cases from public bug reports about SMTP.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use settled::{
    channels::Channel,
    config::destination::Destination,
    domain::outcome::{DoubtKind, Outcome, Proof},
};

use super::smtp_render::{assert_well_formed, refused, rendered, smtp};
use crate::support::{
    gates::TestGate,
    mail::{RECIPIENT, build, bytes, channel, destination, outgoing, payload, send},
    relay::{Act, Relay, Speaks},
};

fn not_sent(proof: Proof) -> Outcome {
    Outcome::NotSent { proof, retry_after: None }
}

fn say(text: &str) -> Act {
    Act::Say(text.to_owned())
}

#[tokio::test]
async fn case_075_a_relay_that_falls_silent_is_given_up_at_every_step() {
    let big = json!({"to": RECIPIENT, "subject": "s", "text": "0123456789abcdef\n".repeat(500_000)});
    for (step, act, payload, wanted) in [
        ("greeting", Act::Silent, payload(), not_sent(Proof::NotConnected)),
        ("EHLO", Act::Silent, payload(), not_sent(Proof::NotConnected)),
        ("body", Act::Silent, big, not_sent(Proof::Incomplete)),
        ("dot", Act::Silent, payload(), Outcome::Ambiguous { doubt: DoubtKind::NoReply }),
    ] {
        let relay = Relay::start(Speaks::Plain, [(step, act)]).await;
        let mut destination = destination(relay.address, json!({}));
        for limit in ["command", "body", "final_dot"] {
            destination["timeouts"][limit] = "300ms".into();
        }
        let began = std::time::Instant::now();
        let ended = send(&build(destination), &outgoing(&payload), TestGate::open()).await;
        assert_eq!(ended.outcome, wanted, "{step}: {:?}", ended.report);
        assert!(began.elapsed() < Duration::from_secs(10), "{step}");
    }
}

#[tokio::test]
async fn case_075_all_commands_together_have_one_limit() {
    // Each reply comes within its own limit, the sum does not.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let slow = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = [0_u8; 1024];
        for reply in ["220 hello\r\n", "250-relay\r\n", "250-a\r\n", "250-b\r\n", "250-c\r\n", "250-d\r\n", "250 e\r\n"]
        {
            tokio::time::sleep(Duration::from_millis(250)).await;
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
        while stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
    });
    let mut destination = destination(address, json!({}));
    destination["timeouts"]["command"] = "400ms".into();
    let began = std::time::Instant::now();
    let ended = send(&build(destination), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, not_sent(Proof::NotConnected));
    assert!(began.elapsed() < Duration::from_millis(1400), "{:?}", began.elapsed());
    slow.abort();
}

#[tokio::test]
async fn case_076_421_is_not_accepted_wherever_it_comes() {
    for step in ["MAIL", "RCPT", "DATA", "dot", "greeting"] {
        let relay = Relay::start(Speaks::Plain, [(step, Act::SayAndClose("421 4.3.2 shutting down".to_owned()))]).await;
        let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
        // Before a recipient was named it is about us, and the destination waits.
        let proof = if matches!(step, "greeting" | "MAIL") { Proof::Throttled } else { Proof::Deferred };
        assert_eq!(ended.outcome, not_sent(proof), "{step}");
    }
}

#[tokio::test]
async fn case_077_every_greylisting_code_waits_for_minutes() {
    for text in ["422 4.2.2 Greylisted", "450 later", "451 4.7.1 later", "455 later"] {
        let relay = Relay::start(Speaks::Plain, [("RCPT", say(text))]).await;
        let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
        assert_eq!(ended.outcome, Outcome::NotSent { proof: Proof::Deferred, retry_after: Some(300) }, "{text}");
    }
}

#[tokio::test]
async fn case_081_what_would_inject_is_refused_by_name_and_a_body_arrives_as_it_is() {
    let with = |member: &str, value: &str| {
        let mut payload = payload();
        payload[member] = value.into();
        payload
    };
    assert_eq!(refused(&with("subject", "Hi\r\nBcc: v@example.org")), "/subject");
    assert_eq!(refused(&with("from_name", "X\r\nReply-To: e@x.test")), "/from_name");
    assert_eq!(refused(&with("to", "b@mock.test>\r\nRCPT TO:<v@x.test")), "/to");
    assert_eq!(refused(&with("reply_to", "a@b.test\nX: y")), "/reply_to");
    let mut header = payload();
    header["headers"] = json!({"X-A: b\r\nBcc": "y@x.test"});
    assert!(refused(&header).starts_with("/headers/"));

    let body = "a\r\n.\r\nMAIL FROM:<e@x.test>\r\n..\r\n";
    let mut relay = Relay::start(Speaks::Plain, []).await;
    let channel = channel(&relay, Speaks::Plain, json!({}));
    let ended = send(&channel, &outgoing(&with("text", body)), TestGate::open()).await;
    assert!(matches!(ended.outcome, Outcome::Sent { .. }));
    let heard = relay.heard().await;
    assert_eq!(mailparse::parse_mail(&heard.mail()).unwrap().get_body_raw().unwrap(), body.as_bytes());
    assert_eq!(heard.commands.iter().filter(|line| line.starts_with("MAIL")).count(), 1);
    assert_eq!(heard.command("RCPT").unwrap().split(' ').nth(1), Some("TO:<ap@acme.test>"));
}

#[test]
fn case_082_no_line_of_a_long_subject_is_over_the_limit() {
    for subject in [format!("{} INV-2291", "ä".repeat(200)), format!("x {} INV-2291", "t".repeat(1080))] {
        let mail = rendered(
            &json!({"to": RECIPIENT, "subject": subject, "text": "t", "headers": {"X-Long-Name": "v".repeat(3000)}}),
        );
        assert_well_formed(&mail);
        let parsed = mailparse::parse_mail(&mail).unwrap();
        let read = parsed.headers.iter().find(|header| header.get_key_ref() == "Subject").unwrap().get_value();
        assert_eq!(read, subject);
        let long = parsed.headers.iter().find(|header| header.get_key_ref() == "X-Long-Name").unwrap().get_value();
        assert_eq!(long.len(), 3000);
    }
    let mut intent = outgoing(&payload());
    intent.reference = "r".repeat(300);
    assert_eq!(smtp(json!({})).prepare(&intent).err().unwrap().field, "reference");
}

#[test]
fn case_084_lone_cr_and_lf_never_reach_the_wire_and_nul_is_refused() {
    let with = |text: &str| json!({"to": RECIPIENT, "subject": "s", "text": text});
    assert_eq!(refused(&with("a\nb\rc\u{0}d\r\n.\n")), "/text");
    let text = "a\nb\rc\r\n.\n";
    let mail = rendered(&with(text));
    assert_well_formed(&mail);
    let read = mailparse::parse_mail(&mail).unwrap().get_body_raw().unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), "a\r\nb\rc\r\n.", "line ends are CRLF, the lone CR is kept");
}

#[test]
fn case_085_nobody_is_copied_behind_the_back_of_the_ledger() {
    let with = |member: &str, value: Value| {
        let mut payload = payload();
        payload[member] = value;
        payload
    };
    assert_eq!(refused(&with("bcc", json!(["x@mock.test"]))), "/bcc");
    assert_eq!(refused(&with("cc", json!("x@mock.test"))), "/cc");
    for name in [
        "BCC",
        "bcc",
        "Cc",
        "To",
        "From",
        "Sender",
        "Date",
        "Message-ID",
        "message-id",
        "Subject",
        "Reply-To",
        "Content-Type",
        "MIME-Version",
        "DKIM-Signature",
        "Received",
        "Return-Path",
        "X-Settled-Key",
        "X-Settled-Attempt",
        "Resent-To",
        "ARC-Seal",
        "Idempotency-Key",
        "a b",
        "a:b",
        "",
        "ä",
    ] {
        let field = refused(&with("headers", json!({name: "y@mock.test"})));
        assert!(field.starts_with("/headers/"), "{name}: {field}");
    }
}

#[tokio::test]
async fn case_086_a_local_part_outside_ascii_needs_smtputf8_before_mail() {
    let mut intent = outgoing(&json!({"to": "josé@mock.test", "subject": "INV-2291", "text": "t"}));
    intent.recipient = "josé@mock.test".to_owned();
    let mut relay = Relay::start(Speaks::Plain, []).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &intent, TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Refused { code: 553 });
    assert!(ended.report.cause.unwrap().contains("SMTPUTF8"));
    assert!(relay.heard().await.command("MAIL").is_none());

    let offers = say("250-relay\r\n250-8BITMIME\r\n250 SMTPUTF8");
    let mut relay = Relay::start(Speaks::Plain, [("EHLO", offers)]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &intent, TestGate::open()).await;
    assert!(matches!(ended.outcome, Outcome::Sent { .. }), "{ended:?}");
    let heard = relay.heard().await;
    assert_eq!(heard.command("MAIL"), Some("MAIL FROM:<billing@example.test> BODY=8BITMIME SMTPUTF8"));
    assert_eq!(heard.command("RCPT"), Some("RCPT TO:<josé@mock.test>"));

    let mut idn = outgoing(&json!({"to": "b@exämple.test", "subject": "s", "text": "t"}));
    idn.recipient = "b@exämple.test".to_owned();
    assert_eq!(smtp(json!({})).prepare(&idn).err().unwrap().field, "/to");
}

#[test]
fn two_addresses_that_look_alike_are_not_two_people() {
    for odd in [
        "ap\u{202e}@acme.test",
        "a\u{200b}p@acme.test",
        "\u{feff}ap@acme.test",
        "a\u{2066}p\u{2069}@acme.test",
        "ap\u{fe0f}@acme.test",
    ] {
        let mut intent = outgoing(&json!({"to": odd, "subject": "s", "text": "t"}));
        intent.recipient = odd.to_owned();
        assert_eq!(smtp(json!({})).prepare(&intent).err().unwrap().field, "/to", "{odd:?}");
    }
    for plain in ["josé@mock.test", "用户@mock.test", "o'neil+x@mock.test"] {
        let mut intent = outgoing(&json!({"to": plain, "subject": "s", "text": "t"}));
        intent.recipient = plain.to_owned();
        assert!(smtp(json!({})).prepare(&intent).is_ok(), "{plain}");
    }
}

#[tokio::test]
async fn a_mail_that_the_relay_says_it_is_too_large_for_is_refused_before_mail() {
    let offers = say("250-relay\r\n250 SIZE 2000");
    let big = json!({"to": RECIPIENT, "subject": "s", "text": "0123456789abcdef\n".repeat(200)});
    let mut relay = Relay::start(Speaks::Plain, [("EHLO", offers)]).await;
    let channel = channel(&relay, Speaks::Plain, json!({}));
    let ended = send(&channel, &outgoing(&big), TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Refused { code: 552 });
    assert!(ended.report.cause.unwrap().contains("2000 octets"));
    assert!(relay.heard().await.command("MAIL").is_none());
    assert!(matches!(send(&channel, &outgoing(&payload()), TestGate::open()).await.outcome, Outcome::Sent { .. }));
}

#[tokio::test]
async fn case_087_the_relays_own_name_is_kept_as_evidence() {
    let relay = Relay::start(Speaks::Plain, [("dot", say("250 Ok 0102abc-000000"))]).await;
    let ended = send(&channel(&relay, Speaks::Plain, json!({})), &outgoing(&payload()), TestGate::open()).await;
    assert_eq!(ended.outcome, Outcome::Sent { provider_id: Some("0102abc-000000".to_owned()) });
}

#[tokio::test]
async fn case_088_both_attempts_of_an_intent_carry_one_message_id() {
    let mut relay = Relay::start(Speaks::Plain, [("dot", say("451 4.3.0 later"))]).await;
    let channel = channel(&relay, Speaks::Plain, json!({}));
    let mut ids = Vec::new();
    for attempt in 1..=2 {
        let mut intent = outgoing(&payload());
        intent.attempt = attempt;
        send(&channel, &intent, TestGate::open()).await;
        let mail = relay.heard().await.mail();
        let text = String::from_utf8(mail).unwrap();
        ids.push(text.lines().find_map(|line| line.strip_prefix("Message-ID: ")).unwrap().to_owned());
    }
    assert_eq!(ids.first(), ids.last());
    let inner = ids[0].strip_prefix('<').unwrap().strip_suffix('>').unwrap();
    assert!(inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '@')));
}

#[test]
fn case_089_the_wait_after_the_dot_is_ten_minutes_and_the_lease_is_longer() {
    let destination: Destination =
        serde_json::from_value(json!({"name": "mail", "channel": "smtp", "smtp": {"host": "h", "from": "a@b.test"}}))
            .unwrap();
    assert!(destination.timeouts.final_dot >= Duration::from_secs(600));
    assert!(destination.lease() > destination.worst_send_time());
    assert!(destination.worst_send_time() > destination.timeouts.final_dot);
}

#[test]
fn attachments_that_are_none_are_refused_by_position() {
    let with = |attachment: Value| {
        json!({"to": RECIPIENT, "subject": "s", "text": "t", "attachments": [
            {"filename": "a.txt", "content_type": "text/plain", "content_base64": "YQ=="}, attachment]})
    };
    let good = STANDARD.encode("x");
    for (attachment, field) in [
        (json!({"filename": "../a", "content_type": "text/plain", "content_base64": good}), "/attachments/1/filename"),
        (
            json!({"filename": "a\r\nb", "content_type": "text/plain", "content_base64": good}),
            "/attachments/1/filename",
        ),
        (
            json!({"filename": "a", "content_type": "message/rfc822", "content_base64": good}),
            "/attachments/1/content_type",
        ),
        (json!({"filename": "a", "content_type": "nothing", "content_base64": good}), "/attachments/1/content_type"),
        (
            json!({"filename": "a", "content_type": "text/plain", "content_base64": "?"}),
            "/attachments/1/content_base64",
        ),
    ] {
        assert_eq!(refused(&with(attachment)), field);
    }
    let prepared = smtp(json!({}))
        .prepare(&outgoing(&with(json!({"filename": "b.txt", "content_type": "text/plain", "content_base64": good}))));
    assert_well_formed(bytes(&prepared.unwrap()));
}
