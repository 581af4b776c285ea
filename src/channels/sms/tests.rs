//! Rendering, beside the code.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]

use serde_json::{Value, json};

use super::*;

fn destination(sms: &Value) -> Destination {
    serde_json::from_value(json!({ "name": "sms", "channel": "sms", "sms": sms })).unwrap()
}

fn good() -> Value {
    json!({
        "url": "https://h.test/messages",
        "json": { "to": "{to}", "text": "{text}", "ref": "{key}" },
        "reference_in": "/ref",
        "reply": { "sent_when": { "status": [201] } },
    })
}

fn outgoing(text: &str) -> Outgoing {
    Outgoing {
        intent_id: uuid::Uuid::nil(),
        tenant: String::new(),
        destination: "sms".to_owned(),
        key: "k".repeat(32),
        reference: "INV-2291".to_owned(),
        occurrence: 1,
        recipient: "+4915112345678".to_owned(),
        attempt: 1,
        earlier_bytes: false,
        created_at: chrono::DateTime::UNIX_EPOCH,
        payload: json!({ "to": "+4915112345678", "text": text }).to_string(),
    }
}

fn render(sms: &Value, text: &str) -> Result<String, Unsupported> {
    let prepared = Sms::build(&destination(sms)).unwrap().prepare(&outgoing(text))?;
    match prepared.wire {
        Wire::Http(request) => Ok(String::from_utf8(request.body.to_vec()).unwrap()),
        Wire::Mail(_) => Ok(String::new()),
    }
}

#[test]
fn a_wrong_setting_is_refused_and_named() {
    Sms::build(&destination(&good())).unwrap();
    let cases = [
        ("url", json!("/messages"), "sms.url"),
        ("url", json!("https://h.test/{recipient}"), "sms.url"),
        ("json", json!({ "to": "{to}" }), "sms.json"),
        ("json", json!({ "to": "{to}", "text": "{text}", "from": "{from}", "ref": "{key}" }), "sms.from"),
        ("from", json!("a\nb"), "sms.from"),
        ("form", json!({ "to": "{to}" }), "sms.form"),
        ("method", json!("GET"), "sms.method"),
        ("method", json!("DELETE"), "sms"),
        ("reference_in", json!("/to"), "sms.reference_in"),
        ("reference_in", json!("/nowhere"), "sms.reference_in"),
        ("max_segments", json!(0), "sms.max_segments"),
        ("reply", json!({}), "sms.reply.sent_when"),
        ("reply", json!({ "sent_when": {} }), "sms.reply.sent_when"),
        ("headers", json!({ "x-text": "{text}" }), "sms.headers.x-text"),
        ("headers", json!({ "content-length": "{key}" }), "sms.headers.content-length"),
        ("auth", json!({ "bearer": { "file": "/nonexistent/x" } }), "sms.auth"),
        ("surprise", json!(1), "sms"),
    ];
    for (name, value, field) in cases {
        let mut sms = good();
        sms[name] = value.clone();
        assert_eq!(Sms::build(&destination(&sms)).err().unwrap().field, field, "{name} = {value}");
    }
}

#[test]
fn a_text_gets_the_reference_where_no_field_carries_it() {
    let mut sms = good();
    sms["json"] = json!({ "text": "{text}", "to": "{to}" });
    sms.as_object_mut().unwrap().remove("reference_in");
    let said = |text: &str| serde_json::from_str::<Value>(&render(&sms, text).unwrap()).unwrap()["text"].clone();
    assert_eq!(said("Pay please."), "Pay please. (INV-2291)");
    assert_eq!(said("Pay inv-2291."), "Pay inv-2291.");
    assert_eq!(said("Pay INV-22910."), "Pay INV-22910. (INV-2291)");
}

#[test]
fn case_098_a_text_over_the_allowed_parts_is_not_sent() {
    let mut sms = good();
    sms["max_segments"] = json!(1);
    render(&sms, &"a".repeat(160)).unwrap();
    let error = render(&sms, &"a".repeat(161)).unwrap_err();
    assert_eq!(error.field, "/text");
    assert!(error.rule.contains("needs 2"), "{}", error.rule);
}

#[test]
fn case_099_the_text_is_sent_as_given() {
    let text = "e\u{301} \u{1F60E} \u{2013} INV-2291 - \u{201C}x\u{201D}\r\n";
    let body: Value = serde_json::from_str(&render(&good(), text).unwrap()).unwrap();
    assert_eq!(body["text"], text);
}

#[test]
fn what_cannot_be_sent_is_refused_before_the_first_byte() {
    let refused = |payload: &str, recipient: &str| {
        let mut outgoing = outgoing("x");
        payload.clone_into(&mut outgoing.payload);
        recipient.clone_into(&mut outgoing.recipient);
        Sms::build(&destination(&good())).unwrap().prepare(&outgoing).err().unwrap().field
    };
    assert_eq!(refused(r#"{"text":"x"}"#, "0049301234567"), "/to");
    assert_eq!(refused(r#"{"text":"x","to":"+4930123456"}"#, "+4915112345678"), "/to");
    assert_eq!(refused(r#"{"text":" "}"#, "+4915112345678"), "/text");
    assert_eq!(refused(r#"{"text":"a\u0000b"}"#, "+4915112345678"), "/text");
    assert_eq!(refused(r#"{"text":"x","media":"y"}"#, "+4915112345678"), "/");
    assert_eq!(refused("[]", "+4915112345678"), "/");
}

#[test]
fn equal_intents_have_equal_digests_and_others_do_not() {
    let sms = Sms::build(&destination(&good())).unwrap();
    let digest = |outgoing: &Outgoing| sms.prepare(outgoing).unwrap().digest;
    let one = outgoing("x");
    let mut later = one.clone();
    later.attempt = 2;
    assert_eq!(digest(&one), digest(&later));
    assert_ne!(digest(&one), digest(&outgoing("y")));
    let mut other = one.clone();
    other.key = "j".repeat(32);
    assert_ne!(digest(&one), digest(&other));
}

#[test]
fn an_echo_is_recognised_in_other_spellings() {
    let outgoing = outgoing("Your code is 1234, do not share it");
    for echo in ["{\"to\":\"4915112345678\"}", "sent to 0151 1234-5678", "{\"body\":\"your code is 1234\"}"] {
        assert!(echoes(echo, &outgoing), "{echo}");
    }
    assert!(!echoes("{\"error\":\"insufficient credit\"}", &outgoing));
}
