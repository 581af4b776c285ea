//! Text messages through a scripted provider: what leaves, byte by byte, and what its answers mean.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use settled::{
    channels::{Channel, sms::Sms, wire::AlwaysOpen},
    config::destination::Destination,
    domain::{
        gate::BoxFuture,
        intent::Outgoing,
        outcome::{DoubtKind, Ended, Outcome, Proof, Stage},
    },
};
use uuid::Uuid;

use super::{
    conformance::{Bench, FAULTS, Fault, Running, check},
    fake::{Fake, reply},
    webhook::{http_script, nobody, whole},
};
use crate::support::scripted::{Act, Scripted, json};

const KEY: &str = "0123456789abcdef0123456789abcdef";

fn destination(base: &str, sms: Value) -> Destination {
    let mut whole = json!({
        "name": "texts",
        "channel": "sms",
        "allow_addresses": ["127.0.0.0/8"],
        "timeouts": { "connect": "2s", "reply": "5s" },
        "sms": {
            "url": format!("{base}/v1/messages"),
            "from": "ACME",
            "json": { "to": "{to}", "from": "{from}", "text": "{text}", "client_reference": "{key}" },
            "reference_in": "/client_reference",
            "reply": { "sent_when": { "status": [201], "json": { "pointer": "/status", "equals": "queued" } },
                       "provider_id": "/id" },
        },
    });
    if let Value::Object(members) = sms {
        for (name, value) in members {
            whole["sms"][name] = value;
        }
    }
    serde_json::from_value(whole).unwrap()
}

fn outgoing(text: &str) -> Outgoing {
    Outgoing {
        intent_id: Uuid::nil(),
        tenant: "t".to_owned(),
        destination: "texts".to_owned(),
        key: KEY.to_owned(),
        reference: "INV-2291".to_owned(),
        occurrence: 1,
        recipient: "+4915112345678".to_owned(),
        attempt: 1,
        earlier_bytes: false,
        created_at: chrono::DateTime::UNIX_EPOCH,
        payload: json!({ "to": "+4915112345678", "text": text }).to_string(),
    }
}

async fn send(destination: &Destination, outgoing: &Outgoing) -> Ended {
    let sms = Sms::build(destination).unwrap();
    let prepared = sms.prepare(outgoing).unwrap();
    sms.send(prepared, outgoing, Arc::new(AlwaysOpen)).await
}

async fn answered(act: impl Fn() -> Act + Send + Sync + 'static) -> Ended {
    let server = Scripted::new(move |_| act()).await;
    let mut destination = destination(&server.base, json!({}));
    destination.timeouts.reply = Duration::from_millis(300);
    let ended = send(&destination, &outgoing("Invoice INV-2291 is due")).await;
    assert_eq!(server.got().len(), 1, "sent once, whatever the answer");
    ended
}

#[tokio::test]
async fn a_json_body_leaves_as_it_was_described() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret\n").unwrap();
    let server = Scripted::new(|_| json(201, &json!({ "id": "SM1", "status": "queued" }))).await;
    let settings = json!({
        "auth": { "basic": { "user": "acme", "password": { "file": secret } } },
        "headers": { "Idempotency-Key": "{key}", "X-Team": "billing" },
    });
    let text = "Invoice \"INV-2291\" \u{2013} 40 €\n{text}";
    let ended = send(&destination(&server.base, settings), &outgoing(text)).await;
    assert_eq!(ended.outcome, Outcome::Sent { provider_id: Some("SM1".to_owned()) });
    assert_eq!((ended.report.stage, ended.report.code), (Stage::Replied, Some(201)));
    assert_eq!(ended.report.bytes_handed, ended.report.bytes_needed);
    let got = server.got().remove(0);
    assert_eq!((got.method.as_str(), got.target.as_str()), ("POST", "/v1/messages"));
    assert_eq!(
        String::from_utf8(got.body.clone()).unwrap(),
        format!(
            "{{\"client_reference\":\"{KEY}\",\"from\":\"ACME\",\"text\":\"Invoice \\\"INV-2291\\\" \u{2013} 40 €\\n{{text}}\",\"to\":\"+4915112345678\"}}"
        )
    );
    assert_eq!(got.header("content-type"), Some("application/json"));
    assert_eq!(got.header("authorization"), Some("Basic YWNtZTpzM2NyZXQ="));
    assert_eq!(got.header("idempotency-key"), Some(KEY));
    assert_eq!(got.header("x-team"), Some("billing"));
}

#[tokio::test]
async fn a_form_body_leaves_as_it_was_described() {
    let server = Scripted::new(|_| json(201, &json!({ "id": 7, "status": "queued" }))).await;
    let mut destination = destination(
        &server.base,
        json!({ "form": { "To": "{to}", "From": "{from}", "Body": "{text}", "Ref": "{reference};{occurrence}" },
                "reference_in": "Ref" }),
    );
    destination.sms.as_mut().unwrap().as_object_mut().unwrap().remove("json");
    let ended = send(&destination, &outgoing("1 + 1 = 2 & ü")).await;
    assert_eq!(ended.outcome, Outcome::Sent { provider_id: Some("7".to_owned()) });
    let got = server.got().remove(0);
    assert_eq!(
        String::from_utf8(got.body.clone()).unwrap(),
        "Body=1+%2B+1+%3D+2+%26+%C3%BC&From=ACME&Ref=INV-2291%3B1&To=%2B4915112345678"
    );
    assert_eq!(got.header("content-type"), Some("application/x-www-form-urlencoded"));
}

#[tokio::test]
async fn a_provider_that_is_asked_by_url_gets_the_reference_in_the_text() {
    let server = Scripted::new(|_| json(201, &json!({ "id": 7, "status": "queued" }))).await;
    let mut destination = destination(&server.base, json!({}));
    let sms = destination.sms.as_mut().unwrap().as_object_mut().unwrap();
    for name in ["json", "reference_in"] {
        sms.remove(name);
    }
    sms.insert("method".to_owned(), json!("GET"));
    sms.insert("url".to_owned(), json!(format!("{}/cgi-bin/sendsms?to={{to}}&text={{text}}", server.base)));
    send(&destination, &outgoing("Please pay")).await;
    assert_eq!(server.got()[0].target, "/cgi-bin/sendsms?to=%2B4915112345678&text=Please%20pay%20%28INV-2291%29");
}

#[tokio::test]
async fn only_what_the_provider_calls_sent_is_sent() {
    let unclear = Outcome::Ambiguous { doubt: DoubtKind::UnclearReply };
    let ended = answered(|| json(201, &json!({ "id": "SM1", "status": "failed" }))).await;
    assert_eq!(ended.outcome, unclear, "an error inside a success");
    assert_eq!(answered(|| json(200, &json!({ "status": "queued" }))).await.outcome, unclear, "another 2xx");
    let html = || Act::Reply(201, vec![("content-type", "text/html".to_owned())], b"<html>".to_vec());
    assert_eq!(answered(html).await.outcome, unclear, "a page for people");
    assert_eq!(answered(|| Act::Reply(201, vec![], vec![])).await.outcome, unclear, "nothing");
}

#[tokio::test]
async fn a_declared_error_inside_a_200_is_refused() {
    let server = Scripted::new(|_| json(200, &json!({ "status": "rejected", "code": 21 }))).await;
    let rules = json!({
        "sent_when": { "json": { "pointer": "/status", "one_of": ["queued", "sent"] } },
        "refused_when": { "json": { "pointer": "/status", "equals": "rejected" } },
    });
    let ended = send(&destination(&server.base, json!({ "reply": rules })), &outgoing("x")).await;
    assert_eq!(ended.outcome, Outcome::Refused { code: 200 });
}

#[tokio::test]
async fn statuses_mean_what_the_table_says() {
    let status = |status: u16| answered(move || json(status, &json!({ "error": "x" })));
    assert_eq!(status(400).await.outcome, Outcome::Refused { code: 400 });
    assert_eq!(status(422).await.outcome, Outcome::Refused { code: 422 });
    let parked = Outcome::NotSent { proof: Proof::Parked, retry_after: None };
    assert_eq!(status(401).await.outcome, parked);
    let deferred = answered(|| Act::Reply(429, vec![("retry-after", "7".to_owned())], vec![])).await;
    assert_eq!(deferred.outcome, Outcome::NotSent { proof: Proof::Throttled, retry_after: Some(7) });
    for doubtful in [302, 408, 409, 500, 502, 503] {
        assert_eq!(status(doubtful).await.outcome, Outcome::Ambiguous { doubt: DoubtKind::UnclearReply }, "{doubtful}");
    }
}

#[tokio::test]
async fn a_provider_that_takes_it_and_says_nothing_leaves_it_in_doubt() {
    let silent = answered(|| Act::Silence).await;
    assert_eq!(silent.outcome, Outcome::Ambiguous { doubt: DoubtKind::NoReply });
    assert_eq!(silent.report.stage, Stage::Handed);
    let closed = answered(|| Act::Close).await;
    assert_eq!(closed.outcome, Outcome::Ambiguous { doubt: DoubtKind::ConnectionLost });
}

#[tokio::test]
async fn a_provider_that_is_not_there_got_nothing() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let ended = send(&destination(&base, json!({})), &outgoing("x")).await;
    assert_eq!(ended.outcome, Outcome::NotSent { proof: Proof::NotConnected, retry_after: None });
    assert_eq!(ended.report.bytes_handed, 0);
}

#[tokio::test]
async fn a_report_does_not_repeat_text_or_recipient() {
    let echo = |body: Value| answered(move || json(400, &body));
    let ended = echo(json!({ "error": "bad number", "to": "+4915112345678" })).await;
    assert_eq!(ended.report.excerpt, None);
    let ended = echo(json!({ "error": "bad text", "body": "Invoice INV-2291 is due" })).await;
    assert_eq!(ended.report.excerpt, None);
    let ended = echo(json!({ "error": "insufficient credit" })).await;
    assert!(ended.report.excerpt.unwrap().contains("insufficient credit"));
}

struct Provider;

impl Bench for Provider {
    fn start(&self, fault: Fault) -> BoxFuture<'_, Option<Running>> {
        Box::pin(async move {
            // A text is far smaller than the buffers of a connection: nothing can break in its middle.
            if matches!(fault, Fault::ResetInBody | Fault::StallInBody) {
                return None;
            }
            let accepted = reply("201 Created", r#"{"id":"SM1","status":"queued"}"#);
            let fake = Arc::new(Fake::play([http_script(fault, &accepted)]).await);
            let address = if fault == Fault::NobodyListens { nobody().await } else { fake.address };
            let mut destination = destination(&format!("http://{address}"), json!({}));
            destination.timeouts.reply = Duration::from_millis(300);
            let count = Arc::clone(&fake);
            Some(Running {
                channel: Arc::new(Sms::build(&destination).unwrap()),
                outgoing: outgoing("Invoice INV-2291 is due"),
                taken: Box::new(move || whole(&count.seen())),
                downstream: Box::new(fake),
            })
        })
    }
}

#[tokio::test]
async fn the_sms_channel_passes_the_conformance_table() {
    for fault in FAULTS {
        check(&Provider, fault).await;
    }
}
