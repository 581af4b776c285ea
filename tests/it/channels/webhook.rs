//! The webhook channel at its boundary.

use std::{net::SocketAddr, sync::Arc};

use serde_json::{Value, json};
use settled::{
    channels::{Channel, Wire, webhook::Webhook},
    config::destination::Destination,
    domain::{
        gate::{BoxFuture, Gate},
        intent::Outgoing,
        outcome::{DoubtKind, Ended, Outcome, Proof},
    },
};

use super::{
    conformance::{Bench, FAULTS, Fault, Running, check},
    fake::{BIG, Fake, Seen, Step, TestGate, reply, reply_with},
};

/// A destination with short limits; `webhook` and further settings on top.
pub fn destination(webhook: Value, more: Value) -> Destination {
    let mut all = json!({
        "name": "hooks",
        "channel": "webhook",
        "allow_addresses": ["127.0.0.0/8"],
        "timeouts": {"connect": "5s", "tls": "1s", "body": "300ms", "reply": "300ms", "answer": "300ms"},
        "webhook": webhook,
    });
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

/// A channel to this URL with nothing else set.
pub fn plain(url: &str) -> Webhook {
    Webhook::build(&destination(json!({"url": url}), json!({}))).unwrap()
}

/// One intent with this payload.
pub fn outgoing(payload: impl Into<String>) -> Outgoing {
    Outgoing {
        intent_id: uuid::Uuid::from_u128(7),
        tenant: "acme".to_owned(),
        destination: "hooks".to_owned(),
        key: "0123456789abcdef0123456789abcdef".to_owned(),
        reference: "INV-2291".to_owned(),
        occurrence: 1,
        recipient: String::new(),
        attempt: 1,
        earlier_bytes: false,
        created_at: "2026-09-01T10:00:00Z".parse().unwrap(),
        payload: payload.into(),
    }
}

/// Prepares and sends once through an open gate.
pub async fn send(channel: &Webhook, outgoing: &Outgoing) -> Ended {
    let prepared = channel.prepare(outgoing).unwrap();
    channel.send(prepared, outgoing, TestGate::open() as Arc<dyn Gate>).await
}

/// The downstream's script for a fault, for every channel that speaks HTTP; `accepts` is its yes.
pub fn http_script(fault: Fault, accepts: &[u8]) -> Vec<Step> {
    let answer = |bytes: Vec<u8>| vec![Step::Request, Step::Send(bytes), Step::Close];
    match fault {
        Fault::None | Fault::NobodyListens => answer(accepts.to_vec()),
        Fault::ResetInBody => vec![Step::Read(70_000), Step::Reset],
        Fault::StallInBody => vec![Step::Read(1_000), Step::Stall],
        Fault::ResetAfterBody => vec![Step::Request, Step::Reset],
        Fault::CloseAfterBody => vec![Step::Request, Step::Close],
        Fault::SilentAfterBody | Fault::GateShut | Fault::GateSaysNo => vec![Step::Request, Step::Hold],
        Fault::GarbageAfterBody => answer(b"220 mail.mock.test ESMTP\r\n".to_vec()),
        Fault::Refused => answer(reply("422 Unprocessable Content", "{}")),
        Fault::NotNow => answer(reply_with("429 Too Many Requests", "Retry-After: 7\r\n", "")),
        Fault::NotYou => answer(reply("401 Unauthorized", "{}")),
        Fault::Broken => answer(reply("502 Bad Gateway", "{}")),
    }
}

/// Whole requests that a fake has read.
pub fn whole(seen: &[Seen]) -> usize {
    let length = |s: &Seen| s.header("content-length").and_then(|n| n.parse::<usize>().ok());
    seen.iter().filter(|s| length(s) == Some(s.body().len())).count()
}

/// An address where nobody listens.
pub async fn nobody() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

struct Hooks {
    payload: String,
}

impl Bench for Hooks {
    fn start(&self, fault: Fault) -> BoxFuture<'_, Option<Running>> {
        Box::pin(async move {
            let in_body = matches!(fault, Fault::ResetInBody | Fault::StallInBody);
            let payload = if in_body { format!("\"{}\"", "x".repeat(BIG)) } else { self.payload.clone() };
            let fake = Arc::new(Fake::play([http_script(fault, &reply("200 OK", "{}"))]).await);
            let address = if fault == Fault::NobodyListens { nobody().await } else { fake.address };
            let channel = Arc::new(plain(&format!("http://{address}/hook")));
            let count = Arc::clone(&fake);
            Some(Running {
                channel,
                outgoing: outgoing(payload),
                taken: Box::new(move || whole(&count.seen())),
                downstream: Box::new(fake),
            })
        })
    }
}

#[tokio::test]
async fn the_webhook_channel_passes_the_conformance_table_with_small_and_large_payloads() {
    for payload in [r#"{"text":"paid"}"#.to_owned(), format!("\"{}\"", "x".repeat(100_000))] {
        let hooks = Hooks { payload };
        for fault in FAULTS {
            check(&hooks, fault).await;
        }
    }
}

#[tokio::test]
async fn a_request_carries_key_reference_and_the_payload_as_it_was_given() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let headers = json!({"X-Api-Version": "2026-09-01"});
    let channel =
        Webhook::build(&destination(json!({"url": fake.url("/in?a=b"), "headers": headers}), json!({}))).unwrap();
    let payload = "{ \"b\": 1.0,\n\"a\":\"caf\\u00e9 \u{e9}\" }";
    let mut out = outgoing(payload);
    (out.attempt, out.occurrence) = (3, 2);
    let ended = send(&channel, &out).await;
    assert_eq!(ended.outcome, Outcome::Sent { provider_id: None });
    let there = fake.first().await;
    assert!(there.head().starts_with("POST /in?a=b HTTP/1.1\r\n"));
    assert_eq!(there.body(), payload.as_bytes());
    for (name, value) in [
        ("webhook-id", "0123456789abcdef0123456789abcdef"),
        ("idempotency-key", "0123456789abcdef0123456789abcdef"),
        ("settled-reference", "INV-2291"),
        ("settled-occurrence", "2"),
        ("settled-attempt", "3"),
        ("content-type", "application/json"),
        ("x-api-version", "2026-09-01"),
    ] {
        assert_eq!(there.header(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(there.header("webhook-signature"), None);
    let stamp: u64 = there.header("webhook-timestamp").unwrap().parse().unwrap();
    assert!(settled::clock::unix_seconds().abs_diff(stamp) < 60);
}

#[tokio::test]
async fn what_a_downstream_compares_under_one_key_is_equal_in_every_attempt() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let replay = json!({"replay": {"key_lifetime": "24h"}});
    let channel = Webhook::build(&destination(json!({"url": fake.url("/")}), replay)).unwrap();
    for attempt in [1, 2] {
        send(&channel, &Outgoing { attempt, ..outgoing("{}") }).await;
    }
    let seen = fake.wait_for(|all| all.len() == 2 && all.iter().all(|s| s.over)).await;
    let stable = |s: &Seen| -> Vec<String> {
        s.head().lines().filter(|line| !line.starts_with("webhook-timestamp")).map(str::to_owned).collect()
    };
    assert_eq!(stable(&seen[0]), stable(&seen[1]));
    assert_eq!(seen[0].header("settled-attempt"), None);
}

#[tokio::test]
async fn the_digest_follows_what_an_equal_attempt_carries_and_nothing_else() {
    let build = |webhook: Value| Webhook::build(&destination(webhook, json!({}))).unwrap();
    let digest = |channel: &Webhook, out: &Outgoing| channel.prepare(out).unwrap().digest;
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "one").unwrap();
    let settings = json!({"url": "https://mock.test/a", "headers": {"x-key": {"file": secret.path()}}});
    let channel = build(settings.clone());
    let first = digest(&channel, &outgoing("{}"));
    assert_eq!(first, digest(&channel, &Outgoing { attempt: 9, ..outgoing("{}") }));
    std::fs::write(&secret, "two").unwrap();
    assert_eq!(first, digest(&build(settings.clone()), &outgoing("{}")), "a rotated credential is no other request");
    assert_ne!(first, digest(&channel, &outgoing("{ }")));
    assert_ne!(first, digest(&channel, &Outgoing { occurrence: 2, ..outgoing("{}") }));
    for (name, value) in [("url", json!("https://mock.test/b")), ("method", json!("PUT")), ("headers", json!({}))] {
        let mut other = settings.clone();
        other[name] = value;
        assert_ne!(first, digest(&build(other), &outgoing("{}")), "{name}");
    }
}

#[tokio::test]
async fn a_message_without_its_reference_is_not_sent() {
    let channel =
        Webhook::build(&destination(json!({"url": "https://mock.test/", "reference_header": false}), json!({})))
            .unwrap();
    let error = channel.prepare(&outgoing(r#"{"invoice":"INV-229"}"#)).err().unwrap();
    assert_eq!(error.field, "payload");
    let prepared = channel.prepare(&outgoing(r#"{"invoice":"INV-2291"}"#)).unwrap();
    let Wire::Http(request) = prepared.wire else { panic!("a webhook is HTTP") };
    assert!(request.headers.iter().all(|(name, _)| name != "settled-reference"));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_name() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "v1,whsec_c2V0dGxlZC1kZW1vLXNlY3JldC0wMDAx\n").unwrap();
    let url = "https://mock.test/";
    for (webhook, field) in [
        (json!({"url": "ftp://mock.test/"}), "webhook.url"),
        (json!({"url": "https://u:p@mock.test/"}), "webhook.url"),
        (json!({"url": "https://mock.test/#x"}), "webhook.url"),
        (json!({"url": "http://10.0.0.1/"}), "webhook.url"),
        (json!({"url": "http://[::ffff:169.254.169.254]/"}), "webhook.url"),
        (json!({"url": "http://2852039166/"}), "webhook.url"),
        (json!({"url": url, "method": "GET"}), "webhook.method"),
        (json!({"url": url, "headers": {"webhook-id": "x"}}), "webhook.headers.webhook-id"),
        (json!({"url": url, "headers": {"Idempotency-Key": "x"}}), "webhook.headers.idempotency-key"),
        (json!({"url": url, "headers": {"Settled-Attempt": "x"}}), "webhook.headers.settled-attempt"),
        (json!({"url": url, "headers": {"Host": "x"}}), "webhook.headers.Host"),
        (json!({"url": url, "headers": {"x-a": "a\r\nb: c"}}), "webhook.headers.x-a"),
        (json!({"url": url, "headers": {"x-a": {"env": "SETTLED_NO_SUCH_VARIABLE"}}}), "webhook.headers.x-a"),
        (json!({"url": url, "signing_secrets": [{"file": secret.path()}]}), "webhook.signing_secrets[0]"),
        (json!({"url": url, "reply": {"sent_when": {}}}), "webhook.reply.sent_when"),
        (json!({"url": url, "urls": []}), "webhook"),
        (json!({}), "webhook"),
    ] {
        let error = Webhook::build(&destination(webhook.clone(), json!({}))).err();
        assert_eq!(error.map(|e| e.field).as_deref(), Some(field), "{webhook}");
    }
    let mut none = destination(json!({}), json!({}));
    none.webhook = None;
    assert_eq!(Webhook::build(&none).err().unwrap().field, "webhook");
    let ca = destination(json!({"url": url}), json!({"ca_file": secret.path()}));
    assert_eq!(Webhook::build(&ca).err().unwrap().field, "ca_file");
}

#[tokio::test]
async fn a_duplicate_after_a_lost_reply_is_ours_and_without_one_it_is_a_conflict() {
    let fake = Fake::answering(reply("409 Conflict", "{}")).await;
    let settings = json!({"url": fake.url("/"), "reply": {"duplicate_reply": [409]}});
    let channel = Webhook::build(&destination(settings, json!({}))).unwrap();
    let first = send(&channel, &outgoing("{}")).await;
    assert_eq!(first.outcome, Outcome::Ambiguous { doubt: DoubtKind::UnclearReply });
    assert!(first.report.cause.unwrap().starts_with("conflict"));
    let second = send(&channel, &Outgoing { attempt: 2, earlier_bytes: true, ..outgoing("{}") }).await;
    assert_eq!(second.outcome, Outcome::Sent { provider_id: None });
}

#[tokio::test]
async fn retry_after_is_capped_by_the_destination() {
    let fake = Fake::answering(reply_with("429 Too Many Requests", "Retry-After: 86400\r\n", "")).await;
    let channel =
        Webhook::build(&destination(json!({"url": fake.url("/")}), json!({"limits": {"backoff_max": "10m"}}))).unwrap();
    let ended = send(&channel, &outgoing("{}")).await;
    assert_eq!(ended.outcome, Outcome::NotSent { proof: Proof::Throttled, retry_after: Some(600) });
}
