//! From an intent to the bytes of its mail.

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::{Value, json};
use settled::channels::Channel;
use settled::channels::smtp::Smtp;

use crate::support::mail::{KEY, RECIPIENT, build, bytes, destination, outgoing, payload};

pub fn smtp(more: Value) -> Smtp {
    build(destination("127.0.0.1:25".parse().unwrap(), more))
}

/// The rendered bytes.
pub fn rendered(payload: &Value) -> Vec<u8> {
    bytes(&smtp(json!({})).prepare(&outgoing(payload)).unwrap()).to_vec()
}

/// The member that is refused.
pub fn refused(payload: &Value) -> String {
    smtp(json!({})).prepare(&outgoing(payload)).err().unwrap_or_else(|| panic!("taken: {payload}")).field
}

/// What every mail must keep to.
pub fn assert_well_formed(mail: &[u8]) {
    assert!(mail.ends_with(b"\r\n"));
    let text = String::from_utf8(mail.to_vec()).unwrap();
    assert!(!text.contains('\0'));
    for line in text.strip_suffix("\r\n").unwrap().split("\r\n") {
        assert!(!line.contains(['\r', '\n']), "{line:?}");
        assert!(line.len() <= 998, "{} octets", line.len());
    }
}

fn full() -> Value {
    json!({
        "to": "Accounts Payable <ap@acme.test>", "subject": "Rechnung für März INV-2291", "text": "Grüße\n", "html": "<p>Grüße</p>",
        "reply_to": "answers@example.test", "from_name": "Billing, Example", "headers": {"X-Campaign": "spring", "List-Id": "<a.b>"},
        "attachments": [{"filename": "rechnung märz.pdf", "content_type": "application/pdf",
            "content_base64": STANDARD.encode([0_u8, 13, 10, 46, 10, 255])}],
    })
}

#[test]
fn golden_a_plain_mail_is_these_bytes() {
    let wanted = "X-Settled-Attempt: 1\r\n\
        Date: Wed, 04 Mar 2026 05:06:07 +0000\r\n\
        From: billing@example.test\r\n\
        To: ap@acme.test\r\n\
        Message-ID: <0f1e2d3c4b5a69788796a5b4c3d2e1f0@example.test>\r\n\
        X-Settled-Key: 0f1e2d3c4b5a69788796a5b4c3d2e1f0\r\n\
        X-Settled-Reference: INV-2291\r\n\
        Subject: Invoice INV-2291\r\n\
        MIME-Version: 1.0\r\n\
        Content-Type: text/plain; charset=utf-8\r\n\
        Content-Transfer-Encoding: 7bit\r\n\
        \r\n\
        Please find the invoice.\r\n";
    assert_eq!(String::from_utf8(rendered(&payload())).unwrap(), wanted);
}

#[test]
fn the_same_intent_gives_the_same_bytes_and_digest_each_time() {
    let intent = outgoing(&full());
    let (one, two) = (smtp(json!({})).prepare(&intent).unwrap(), smtp(json!({})).prepare(&intent).unwrap());
    assert_eq!(bytes(&one), bytes(&two));
    assert_eq!(one.digest, two.digest);
    let text = String::from_utf8(bytes(&one).to_vec()).unwrap();
    assert!(text.contains(&format!("boundary=\"=_{KEY}_m\"")), "{text}");
    assert!(text.contains(&format!("boundary=\"=_{KEY}_a\"")), "{text}");
    assert_well_formed(bytes(&one));
}

#[test]
fn the_attempt_is_marked_but_does_not_change_the_digest() {
    let (mut first, mut second) = (outgoing(&payload()), outgoing(&payload()));
    (first.attempt, second.attempt) = (1, 2);
    let channel = smtp(json!({}));
    let (first, second) = (channel.prepare(&first).unwrap(), channel.prepare(&second).unwrap());
    assert_eq!(first.digest, second.digest);
    assert_ne!(bytes(&first), bytes(&second));
    assert!(bytes(&second).starts_with(b"X-Settled-Attempt: 2\r\n"));

    let mut replaying = destination("127.0.0.1:25".parse().unwrap(), json!({}));
    replaying["replay"] = json!({"key_lifetime": "24h"});
    let unmarked = build(replaying).prepare(&outgoing(&payload())).unwrap();
    assert_eq!(unmarked.digest, first.digest);
    assert!(!String::from_utf8_lossy(bytes(&unmarked)).contains("X-Settled-Attempt"));
}

#[test]
fn what_is_sent_can_be_read_back_as_it_was_given() {
    let mail = rendered(&full());
    let parsed = mailparse::parse_mail(&mail).unwrap();
    let header = |name: &str| {
        parsed
            .headers
            .iter()
            .find(|header| header.get_key_ref().eq_ignore_ascii_case(name))
            .map(mailparse::MailHeader::get_value)
    };
    assert_eq!(header("Subject").as_deref(), Some("Rechnung für März INV-2291"));
    assert_eq!(header("X-Campaign").as_deref(), Some("spring"));
    assert_eq!(header("Reply-To").as_deref(), Some("answers@example.test"));
    assert_eq!(header("From").as_deref(), Some("Billing, Example <billing@example.test>"));
    assert_eq!(parsed.subparts.len(), 2);
    let alternatives = &parsed.subparts[0].subparts;
    assert_eq!(alternatives[0].get_body().unwrap().trim_end(), "Grüße");
    assert_eq!(alternatives[1].get_body().unwrap().trim_end(), "<p>Grüße</p>");
    assert_eq!(parsed.subparts[1].get_body_raw().unwrap(), [0, 13, 10, 46, 10, 255]);
}

#[test]
fn a_reference_of_120_characters_stays_on_its_line() {
    let mut intent = outgoing(&payload());
    intent.reference = "R".repeat(120);
    let prepared = smtp(json!({})).prepare(&intent).unwrap();
    let text = String::from_utf8(bytes(&prepared).to_vec()).unwrap();
    assert!(text.contains(&format!("\r\nX-Settled-Reference: {}\r\n", "R".repeat(120))));
}

#[test]
fn a_destination_can_demand_the_reference_in_the_subject_as_a_whole_word() {
    let strict = smtp(json!({"reference_in": "subject"}));
    let with = |subject: &str| {
        let intent = outgoing(&json!({"to": RECIPIENT, "subject": subject, "text": "x"}));
        strict.prepare(&intent).map(|_| ()).map_err(|e| e.field)
    };
    assert_eq!(with("Your invoice inv-2291."), Ok(()));
    for near in ["Your invoice", "INV-22910", "XINV-2291", "INV-2291-b"] {
        assert_eq!(with(near), Err("/subject".to_owned()), "{near}");
    }
}

#[test]
fn the_mail_goes_only_to_whom_it_was_admitted_for() {
    assert_eq!(refused(&json!({"to": "eve@acme.test", "subject": "s", "text": "t"})), "/to");
    assert_eq!(refused(&json!({"to": "ap@acme.test, eve@acme.test", "subject": "s", "text": "t"})), "/to");
    assert_eq!(refused(&json!({"to": "AP@acme.test", "subject": "s", "text": "t"})), "/to");
    assert_well_formed(&rendered(
        &json!({"to": "A, P <ap@ACME.test>".replace("A, P", "\"A, P\""), "subject": "s", "text": "t"}),
    ));
}

#[test]
fn settings_that_cannot_work_are_named() {
    let build = |smtp: Value| {
        let mut destination = destination("127.0.0.1:25".parse().unwrap(), json!({}));
        destination["smtp"] = smtp;
        Smtp::build(&serde_json::from_value(destination).unwrap()).map(|_| ()).unwrap_err().field
    };
    assert_eq!(build(json!({"host": "h", "from": "x"})), "smtp.from");
    assert_eq!(build(json!({"host": "h", "from": "a@b.test", "surprise": 1})), "smtp");
    assert_eq!(build(json!({"host": "h", "from": "a@b.test", "username": "u"})), "smtp.username");
    let missing = json!({"host": "h", "from": "a@b.test", "username": "u", "password": {"file": "/nonexistent/x"}});
    assert_eq!(build(missing), "smtp.password");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_caller_gives_is_refused_or_makes_one_well_formed_mail(
        subject in ".{0,200}", text in "(?s).{0,400}", name in ".{0,60}", to_name in ".{0,40}",
        header in "[ -~]{0,20}", value in ".{0,120}", filename in ".{0,60}",
    ) {
        let payload = json!({
            "to": format!("{to_name} <{RECIPIENT}>"), "subject": subject, "text": text, "html": text, "from_name": name,
            "headers": {header: value}, "attachments": [{"filename": filename, "content_type": "text/plain", "content_base64": "AAo="}],
        });
        if let Ok(prepared) = smtp(json!({})).prepare(&outgoing(&payload)) {
            let mail = bytes(&prepared);
            assert_well_formed(mail);
            let parsed = mailparse::parse_mail(mail).unwrap();
            for name in ["to", "from", "subject", "date", "message-id", "x-settled-key", "x-settled-reference", "content-type"] {
                let there = parsed.headers.iter().filter(|header| header.get_key_ref().eq_ignore_ascii_case(name)).count();
                prop_assert_eq!(there, 1, "{}", name);
            }
            prop_assert_eq!(parsed.subparts.len(), 2);
        }
    }
}
