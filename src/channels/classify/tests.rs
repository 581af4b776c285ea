//! The table, row by row.
#![expect(clippy::unwrap_used, reason = "a test stops loudly")]

use std::{net::IpAddr, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::*;
use crate::{
    channels::wire::{guard::Blocked, http1::Closed},
    domain::outcome::Stage,
};

const CONTEXT: Context =
    Context { asked_json: true, retry_after_cap: Duration::from_secs(600), earlier_bytes: false, now: 1_700_000_000 };

fn replied(status: u16, headers: &[(&str, &str)], body: &str) -> Exchange {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    Exchange {
        stage: Stage::Replied,
        bytes_handed: 100,
        bytes_needed: 100,
        complete: true,
        reply: Some(Reply { status, headers: map, body: body.as_bytes().to_vec(), truncated: false }),
        peer: None,
        cause: None,
        millis: 5,
        closed: Closed::InOrder,
    }
}

fn silent(cause: Cause, handed: u64) -> Exchange {
    Exchange {
        stage: if handed == 100 { Stage::Handed } else { Stage::Body },
        bytes_handed: handed,
        complete: handed == 100,
        reply: None,
        cause: Some(cause),
        closed: Closed::Reset,
        ..replied(200, &[], "")
    }
}

fn rules(value: Value) -> ReplyRules {
    let rules: ReplyRules = serde_json::from_value(value).unwrap();
    rules.check("reply").unwrap();
    rules
}

/// One word for an outcome.
fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Sent { .. } => "sent".to_owned(),
        Outcome::Refused { code } => format!("refused {code}"),
        Outcome::NotSent { proof, retry_after } => format!("{proof:?} {}", retry_after.unwrap_or(0)),
        Outcome::Ambiguous { doubt } => format!("{doubt:?}"),
    }
}

#[test]
fn every_status_has_its_row() {
    for status in 101..=999 {
        let expected = match status {
            200..=299 => "sent".to_owned(),
            425 => "Deferred 0".to_owned(),
            429 => "Throttled 0".to_owned(),
            401 | 403 | 407 => "Parked 0".to_owned(),
            408 | 409 => "UnclearReply".to_owned(),
            400..=499 => format!("refused {status}"),
            _ => "UnclearReply".to_owned(),
        };
        let outcome = classify(&replied(status, &[], "{}"), &ReplyRules::default(), CONTEXT);
        assert_eq!(word(&outcome), expected, "{status}");
    }
}

#[test]
fn every_end_without_a_reply_has_its_row() {
    let blocked = Blocked { address: IpAddr::from([127, 0, 0, 1]), rule: "loopback" };
    let (host, why) = ("h".to_owned(), "w".to_owned());
    let address = ([127, 0, 0, 1], 1).into();
    let dials = [
        (DialError::NotResolved { host: host.clone(), why: why.clone() }, "NotConnected 0"),
        (DialError::Blocked(blocked), "NotConnected 0"),
        (DialError::Refused { address, why: why.clone() }, "NotConnected 0"),
        (DialError::TimedOut(Duration::from_secs(1)), "NotConnected 0"),
        (DialError::Tls { host, why: why.clone() }, "TlsFailed 0"),
    ];
    for (error, expected) in dials {
        let outcome = classify(&silent(Cause::Dial(error), 0), &ReplyRules::default(), CONTEXT);
        assert_eq!(word(&outcome), expected);
    }
    let limit = Duration::from_secs(1);
    for (cause, incomplete, complete) in [
        (Cause::SelfStop, "SelfStopped 0", "ConnectionLost"),
        (Cause::BodyTimeout(limit), "Incomplete 0", "NoReply"),
        (Cause::ReplyTimeout(limit), "Incomplete 0", "NoReply"),
        (Cause::Reset(why.clone()), "Incomplete 0", "ConnectionLost"),
        (Cause::Eof, "Incomplete 0", "ConnectionLost"),
        (Cause::Io(why.clone()), "Incomplete 0", "ConnectionLost"),
        (Cause::Unparsable(why.clone()), "Incomplete 0", "UnclearReply"),
        (Cause::NotBuilt(why), "NotStarted 0", "NotStarted 0"),
    ] {
        let table = ReplyRules::default();
        assert_eq!(word(&classify(&silent(cause.clone(), 99), &table, CONTEXT)), incomplete, "{cause}");
        assert_eq!(word(&classify(&silent(cause.clone(), 100), &table, CONTEXT)), complete, "{cause}");
        if !matches!(cause, Cause::NotBuilt(_)) {
            // A downstream that acts on halves: only what never left is proof.
            let streaming = rules(json!({"incomplete_is_not_sent": false}));
            assert_eq!(word(&classify(&silent(cause.clone(), 99), &streaming, CONTEXT)), complete, "{cause}");
            assert_eq!(word(&classify(&silent(cause.clone(), 0), &streaming, CONTEXT)), incomplete, "{cause}");
        }
    }
}

#[test]
fn a_reply_to_an_incomplete_request_is_proof_unless_it_says_yes() {
    for (status, expected) in [
        (200, "UnclearReply"),
        (307, "Incomplete 0"),
        (401, "Parked 0"),
        (409, "Incomplete 0"),
        (413, "refused 413"),
        (429, "Throttled 0"),
        (500, "Incomplete 0"),
    ] {
        let mut exchange = replied(status, &[], "{}");
        (exchange.complete, exchange.bytes_handed, exchange.closed) = (false, 40, Closed::Reset);
        assert_eq!(word(&classify(&exchange, &ReplyRules::default(), CONTEXT)), expected, "{status}");
    }
}

#[test]
fn html_in_answer_to_json_is_unclear() {
    let page = "<!DOCTYPE html><title>Sign in</title>";
    for (headers, body, expected) in [
        (&[("content-type", "text/html; charset=utf-8")][..], page, "UnclearReply"),
        (&[("content-type", "TEXT/HTML")], "", "UnclearReply"),
        (&[("content-type", "application/xhtml+xml")], "", "UnclearReply"),
        (&[], page, "UnclearReply"),
        (&[("content-type", "text/plain")], "  \n<HTML>", "UnclearReply"),
        (&[("content-type", "text/plain")], "ok", "sent"),
        (&[("content-type", "application/json")], "ok", "sent"),
        (&[], "", "sent"),
    ] {
        let exchange = replied(200, headers, body);
        assert_eq!(word(&classify(&exchange, &ReplyRules::default(), CONTEXT)), expected, "{headers:?} {body}");
        let form = Context { asked_json: false, ..CONTEXT };
        assert_eq!(word(&classify(&exchange, &ReplyRules::default(), form)), "sent");
    }
}

#[test]
fn sent_when_decides_about_a_yes_and_refused_when_about_a_no_inside_one() {
    let table = rules(json!({
        "sent_when": {"status": [200, 201], "json": {"pointer": "/status", "one_of": ["queued", "sent"]}, "content_type": "application/json"},
        "refused_when": {"json": {"pointer": "/ok", "equals": false}},
        "provider_id": "/id",
    }));
    let json = [("content-type", "application/json; charset=utf-8")];
    for (status, headers, body, expected) in [
        (201, &json[..], r#"{"status":"queued","id":"SM1"}"#, "sent"),
        (200, &json, r#"{"status":"failed"}"#, "UnclearReply"),
        (202, &json, r#"{"status":"queued"}"#, "UnclearReply"),
        (200, &json, r#"{"status":null}"#, "UnclearReply"),
        (200, &json, "3: Queued", "UnclearReply"),
        (200, &[], r#"{"status":"queued"}"#, "UnclearReply"),
        (200, &json, r#"{"ok":false,"error":"channel_not_found"}"#, "refused 200"),
        (400, &json, r#"{"status":"queued"}"#, "refused 400"),
        (500, &json, r#"{"status":"queued"}"#, "UnclearReply"),
    ] {
        assert_eq!(word(&classify(&replied(status, headers, body), &table, CONTEXT)), expected, "{status} {body}");
    }
    let id = classify(&replied(201, &json, r#"{"status":"sent","id":77}"#), &table, CONTEXT);
    assert_eq!(id, Outcome::Sent { provider_id: Some("77".to_owned()) });

    let header = rules(json!({"sent_when": {"header": {"name": "X-Accepted", "equals": "1"}}}));
    assert_eq!(word(&classify(&replied(200, &[("x-accepted", "1")], ""), &header, CONTEXT)), "sent");
    assert_eq!(word(&classify(&replied(200, &[("x-accepted", "0")], ""), &header, CONTEXT)), "UnclearReply");
    let present = rules(json!({"sent_when": {"json": {"pointer": "/id"}}}));
    assert_eq!(word(&classify(&replied(200, &[], r#"{"id":1}"#), &present, CONTEXT)), "sent");
    assert_eq!(word(&classify(&replied(200, &[], r#"{"id":null}"#), &present, CONTEXT)), "UnclearReply");
}

#[test]
fn a_duplicate_reply_is_ours_only_where_the_key_is_compared_or_bytes_were_handed_before() {
    for (compares_key, earlier_bytes, expected) in
        [(false, false, "UnclearReply"), (true, false, "sent"), (false, true, "sent"), (true, true, "sent")]
    {
        for status in [208, 409, 422] {
            let table = rules(json!({"duplicate_reply": [208, 409, 422], "compares_key": compares_key}));
            let judged = judge(&replied(status, &[], "{}"), &table, Context { earlier_bytes, ..CONTEXT });
            assert_eq!(word(&judged.outcome), expected, "{status} {compares_key} {earlier_bytes}");
            if expected == "UnclearReply" {
                assert!(judged.note.unwrap().starts_with("conflict"));
            }
        }
    }
}

#[test]
fn a_replayed_5xx_poisons_the_key_and_settles_nothing() {
    for name in ["Idempotent-Replayed", "X-Idempotent-Replayed"] {
        let marked = replied(500, &[(name, "True")], "{}");
        assert_eq!(word(&classify(&marked, &ReplyRules::default(), CONTEXT)), "PoisonedKey");
        let table = rules(json!({"overrides": {"500": {"outcome": "refused", "reason": "validated before acting"}}}));
        assert_eq!(word(&classify(&marked, &table, CONTEXT)), "PoisonedKey");
        assert_eq!(
            word(&classify(&replied(500, &[(name, "false")], ""), &ReplyRules::default(), CONTEXT)),
            "UnclearReply"
        );
        let first = ended(&replied(200, &[(name, "true")], "{}"), &ReplyRules::default(), CONTEXT);
        assert_eq!((word(&first.outcome).as_str(), first.report.replayed), ("sent", true));
    }
}

#[test]
fn an_override_changes_one_status_and_carries_its_reason() {
    let table = rules(json!({"overrides": {
        "503": {"outcome": "deferred", "reason": "shed before the queue"},
        "500": {"outcome": "refused", "reason": "validated before acting"},
        "409": {"outcome": "sent", "reason": "only for our own key"},
        "404": {"outcome": "parked", "reason": "the hook is gone"},
        "400": {"outcome": "unknown", "reason": "answers 400 after acting"},
    }}));
    for (status, expected) in [
        (503, "Throttled 7"),
        (500, "refused 500"),
        (409, "sent"),
        (404, "Parked 0"),
        (400, "UnclearReply"),
        (502, "UnclearReply"),
    ] {
        let exchange = replied(status, &[("retry-after", "7")], "{}");
        assert_eq!(word(&classify(&exchange, &table, CONTEXT)), expected, "{status}");
    }
    let mut half = replied(409, &[], "{}");
    half.complete = false;
    assert_eq!(word(&classify(&half, &table, CONTEXT)), "UnclearReply", "half a request cannot have been taken");
    let said = judge(&replied(503, &[], ""), &table, CONTEXT);
    assert_eq!(said.note.as_deref(), Some("status 503: shed before the queue"));
}

#[test]
fn retry_after_is_obeyed_on_a_definite_not_now_only() {
    let wait = |status| classify(&replied(status, &[("retry-after", "9999")], ""), &ReplyRules::default(), CONTEXT);
    assert_eq!(word(&wait(429)), "Throttled 600");
    assert_eq!(word(&wait(503)), "UnclearReply");
}

#[test]
fn a_redirect_names_the_host_to_configure_and_nothing_more_of_the_target() {
    let there = replied(307, &[("location", "https://www.mock.test/hook?token=secret")], "");
    let ended = ended(&there, &ReplyRules::default(), CONTEXT);
    assert_eq!(ended.report.cause.as_deref(), Some("status 307: redirect to https://www.mock.test, not followed"));
}

#[test]
fn the_report_holds_an_excerpt_without_control_characters() {
    let body = format!("a\r\n\u{1b}[31m{}", "é".repeat(900));
    let ended = ended(&replied(400, &[], &body), &ReplyRules::default(), CONTEXT);
    let excerpt = ended.report.excerpt.unwrap();
    assert_eq!(excerpt.chars().count(), 500);
    assert!(!excerpt.chars().any(char::is_control));
    assert_eq!((ended.report.code, ended.report.closed.as_deref()), (Some(400), Some("closed")));
}

#[test]
fn rules_that_cannot_mean_what_they_say_are_refused_by_name() {
    for (value, field) in [
        (json!({"sent_when": {}}), "reply.sent_when"),
        (json!({"sent_when": {"status": [99]}}), "reply.sent_when.status"),
        (json!({"sent_when": {"json": {"pointer": "status"}}}), "reply.sent_when.json.pointer"),
        (json!({"refused_when": {"header": {"name": "a b"}}}), "reply.refused_when.header.name"),
        (json!({"sent_when": {"json": {"pointer": "/a", "equals": 1, "one_of": [2]}}}), "reply.sent_when.json"),
        (json!({"duplicate_reply": [1000]}), "reply.duplicate_reply"),
        (json!({"provider_id": "id"}), "reply.provider_id"),
        (json!({"overrides": {"500": {"outcome": "refused", "reason": " "}}}), "reply.overrides.500.reason"),
    ] {
        let rules: ReplyRules = serde_json::from_value(value).unwrap();
        assert_eq!(rules.check("reply").unwrap_err().field, field);
    }
    serde_json::from_value::<ReplyRules>(json!({"sent_if": {}})).unwrap_err();
}
