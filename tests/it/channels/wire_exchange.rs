//! One exchange: bytes at the downstream against what the exchange says.

use std::{io::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use settled::{
    channels::wire::{
        dial::{self, DialError, SystemResolver},
        http1::{Cause, Closed, Exchange, Options, Request, exchange, get},
    },
    config::destination::Timeouts,
    domain::{gate::Gate, outcome::Stage},
};

use super::{
    fake::{BIG, Fake, Step, TestGate, reply, reply_with},
    tls::TlsFake,
};

/// Short limits, loopback allowed.
pub fn options() -> Options {
    Options {
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            tls: Duration::from_millis(300),
            body: Duration::from_secs(5),
            reply: Duration::from_secs(5),
            answer: Duration::from_secs(5),
            ..Timeouts::default()
        },
        allow_addresses: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        tls: dial::tls_config(None, &[b"http/1.1"]).unwrap(),
        resolver: Arc::new(SystemResolver),
        answer_bytes: 64 * 1024,
        keep: None,
    }
}

fn post(url: &str, body: impl Into<Bytes>) -> Request {
    Request {
        method: Method::POST,
        url: url.parse().unwrap(),
        headers: vec![(HeaderName::from_static("content-type"), HeaderValue::from_static("application/json"))],
        body: body.into(),
    }
}

async fn run(request: &Request, options: &Options, gate: Arc<dyn Gate>) -> Exchange {
    // Spawned, so that the future is proven to be Send.
    let (request, options) = (request.clone(), options.clone());
    tokio::spawn(async move { exchange(&request, &options, gate).await }).await.unwrap()
}

#[tokio::test]
async fn a_request_arrives_byte_by_byte_with_host_and_length_and_its_size_is_known() {
    let odd = HeaderValue::from_bytes(b"caf\xc3\xa9").unwrap();
    for (path, body) in [
        ("/", "{}".to_owned()),
        ("/hook?x=%20a&y=[1]|{2}", r#"{"text":"Zahlung für INV-2291","n":1.0}"#.to_owned()),
        ("/empty", String::new()),
        ("/large", "x".repeat(300_000)),
        ("/at-the-limit", "x".repeat(16 * 1024)),
    ] {
        let fake = Fake::answering(reply("200 OK", r#"{"id":"m-1"}"#)).await;
        let mut request = post(&fake.url(path), body.clone());
        request.headers.push((HeaderName::from_static("x-odd"), odd.clone()));
        request.headers.push((HeaderName::from_static("transfer-encoding"), HeaderValue::from_static("chunked")));
        request.headers.push((HeaderName::from_static("host"), HeaderValue::from_static("other.test")));
        let seen = run(&request, &options(), TestGate::open()).await;
        let there = fake.first().await;
        assert_eq!(there.bytes.len() as u64, seen.bytes_needed, "{path}");
        assert_eq!(seen.bytes_handed, seen.bytes_needed, "{path}");
        assert_eq!(there.body(), body.as_bytes(), "{path}");
        assert_eq!(there.header("host"), Some(fake.address.to_string()));
        assert_eq!(there.header("content-length"), Some(body.len().to_string()));
        assert_eq!(there.header("transfer-encoding"), None);
        assert!(seen.complete && seen.cause.is_none(), "{:?}", seen.cause);
        assert_eq!((seen.stage, seen.closed, seen.peer), (Stage::Replied, Closed::InOrder, Some(fake.address)));
        let answer = seen.reply.unwrap();
        assert_eq!((answer.status, answer.body.as_slice(), answer.truncated), (200, &br#"{"id":"m-1"}"#[..], false));
    }
}

#[tokio::test]
async fn a_large_request_waits_at_the_gate_with_its_last_byte_held_back() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let gate = TestGate::holding();
    let request = post(&fake.url("/"), vec![b'x'; 100_000]);
    let sending = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { exchange(&request, &options(), gate).await }
    });
    gate.wait_asked().await;
    let there = fake.wait_for(|all| all.first().is_some_and(|s| s.body().len() == 99_999)).await;
    assert!(!there[0].over, "the last byte has not left");
    gate.answer(true);
    let seen = sending.await.unwrap();
    assert!(seen.complete);
    assert_eq!(fake.first().await.body().len(), 100_000);
    assert_eq!(gate.asked(), 1);
}

#[tokio::test]
async fn a_gate_that_says_no_keeps_the_last_byte_and_resets() {
    for size in [0, 20, 100_000] {
        let fake = Fake::play([vec![Step::Hold]]).await;
        let gate = TestGate::holding();
        gate.answer(false);
        let seen = run(&post(&fake.url("/"), vec![b'x'; size]), &options(), gate).await;
        assert_eq!(seen.cause, Some(Cause::SelfStop), "{size}");
        assert_eq!((seen.stage, seen.closed, seen.complete), (Stage::AtGate, Closed::Reset, false), "{size}");
        assert!(seen.bytes_handed < seen.bytes_needed);
        let there = fake.first().await;
        assert!(there.reset, "{size}");
        assert!((there.bytes.len() as u64) < seen.bytes_needed, "{size}");
        if size < 16_000 {
            assert!(there.bytes.is_empty(), "a small request waits whole");
        }
    }
}

#[tokio::test]
async fn a_gate_that_closes_while_the_body_is_written_stops_the_writing() {
    // The peer reads a little and then nothing, so that the writer stands in the middle of the body.
    let fake = Fake::play([vec![Step::Read(1000), Step::Stall]]).await;
    let gate = TestGate::open();
    let request = post(&fake.url("/"), vec![b'x'; BIG]);
    let mut limits = options();
    limits.timeouts.body = Duration::from_millis(400);
    let sending = tokio::spawn({
        let gate = Arc::clone(&gate);
        async move { exchange(&request, &limits, gate).await }
    });
    fake.wait_for(|all| all.first().is_some_and(|s| s.bytes.len() >= 1000)).await;
    gate.shut();
    let seen = sending.await.unwrap();
    assert_eq!(seen.cause, Some(Cause::SelfStop));
    assert!(!seen.complete && seen.bytes_handed < seen.bytes_needed);
    assert_eq!((seen.stage, seen.closed, gate.asked()), (Stage::Body, Closed::Reset, 0));
}

#[tokio::test]
async fn a_gate_closed_from_the_start_dials_nobody() {
    let fake = Fake::answering(reply("200 OK", "{}")).await;
    let gate = TestGate::open();
    gate.shut();
    let seen = run(&post(&fake.url("/"), "{}"), &options(), gate).await;
    assert_eq!((seen.cause, seen.stage), (Some(Cause::SelfStop), Stage::Prepared));
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn a_peer_that_does_not_read_runs_into_the_body_limit_and_the_request_is_incomplete() {
    let fake = Fake::play([vec![Step::Read(1000), Step::Stall]]).await;
    let mut limits = options();
    limits.timeouts.body = Duration::from_millis(200);
    let seen = run(&post(&fake.url("/"), vec![b'x'; BIG]), &limits, TestGate::open()).await;
    assert_eq!(seen.cause, Some(Cause::BodyTimeout(Duration::from_millis(200))));
    assert!(!seen.complete && seen.bytes_handed < seen.bytes_needed);
}

#[tokio::test]
async fn silence_reset_and_eof_after_the_last_byte_are_told_apart_and_all_bytes_counted() {
    let mut limits = options();
    limits.timeouts.reply = Duration::from_millis(150);
    for (last, expected) in [
        (Step::Hold, Some(Cause::ReplyTimeout(Duration::from_millis(150)))),
        (Step::Close, Some(Cause::Eof)),
        (Step::Reset, None),
    ] {
        let fake = Fake::play([vec![Step::Request, last]]).await;
        let seen = run(&post(&fake.url("/"), "{}"), &limits, TestGate::open()).await;
        match expected {
            Some(cause) => assert_eq!(seen.cause, Some(cause)),
            None => assert!(matches!(seen.cause, Some(Cause::Reset(_))), "{:?}", seen.cause),
        }
        assert!(seen.complete && seen.reply.is_none());
        assert_eq!((seen.stage, seen.closed), (Stage::Handed, Closed::Reset));
        assert_eq!(fake.seen().len(), 1, "one connection, one request");
    }
}

#[tokio::test]
async fn a_reset_in_mid_body_leaves_an_incomplete_request() {
    let fake = Fake::play([vec![Step::Read(70_000), Step::Reset]]).await;
    let seen = run(&post(&fake.url("/"), vec![b'x'; BIG]), &options(), TestGate::open()).await;
    assert!(matches!(seen.cause, Some(Cause::Reset(_) | Cause::Eof)), "{:?}", seen.cause);
    assert!(!seen.complete && seen.bytes_handed < seen.bytes_needed);
}

#[tokio::test]
async fn unreadable_heads_are_no_reply() {
    let many: String = (0..101).map(|n| format!("X-{n}: a\r\n")).collect();
    let huge = format!("X-Huge: {}\r\n", "a".repeat(500_000));
    for bytes in
        [b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), reply_with("200 OK", &many, "{}"), reply_with("200 OK", &huge, "{}")]
    {
        let fake = Fake::play([vec![Step::Request, Step::Send(bytes), Step::Hold]]).await;
        let seen = run(&post(&fake.url("/"), "{}"), &options(), TestGate::open()).await;
        assert!(matches!(seen.cause, Some(Cause::Unparsable(_))), "{:?}", seen.cause);
        assert!(seen.complete && seen.reply.is_none());
    }
}

#[tokio::test]
async fn interim_replies_are_skipped_and_switching_protocols_is_only_a_status() {
    let mut two = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec();
    two.extend(reply("202 Accepted", "{}"));
    let fake = Fake::answering(two).await;
    let seen = run(&post(&fake.url("/"), "{}"), &options(), TestGate::open()).await;
    assert_eq!(seen.reply.unwrap().status, 202);

    let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n".to_vec();
    let fake = Fake::answering(switch).await;
    let seen = run(&post(&fake.url("/"), "{}"), &options(), TestGate::open()).await;
    assert_eq!(seen.reply.map(|r| r.status), Some(101), "{:?}", seen.cause);
}

#[tokio::test]
async fn a_head_that_trickles_for_ever_runs_into_the_reply_limit() {
    let mut limits = options();
    limits.timeouts.reply = Duration::from_millis(200);
    let slow = b"HTTP/1.1 200 OK\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".to_vec();
    let fake = Fake::play([vec![Step::Request, Step::Trickle(slow, Duration::from_millis(25))]]).await;
    let seen = run(&post(&fake.url("/"), "{}"), &limits, TestGate::open()).await;
    assert_eq!(seen.cause, Some(Cause::ReplyTimeout(Duration::from_millis(200))));
}

#[tokio::test]
async fn a_body_that_trickles_breaks_or_bursts_changes_nothing_about_the_head() {
    let mut limits = options();
    limits.timeouts.answer = Duration::from_millis(150);
    limits.answer_bytes = 1000;
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n".to_vec();
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b'0'; 16 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let mut gzip =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.len()).into_bytes();
    gzip.extend(bomb);
    for (name, steps, kept) in [
        ("trickle", vec![Step::Send(head.clone()), Step::Trickle(vec![b'a'; 100], Duration::from_millis(30))], 1..100),
        ("broken", vec![Step::Send(head.clone()), Step::Send(vec![b'a'; 10]), Step::Close], 10..11),
        ("too long", vec![Step::Send(reply("200 OK", &"a".repeat(5000))), Step::Hold], 1000..1001),
        ("bomb", vec![Step::Send(gzip), Step::Hold], 1000..1001),
    ] {
        let script = std::iter::once(Step::Request).chain(steps).collect();
        let fake = Fake::play([script]).await;
        let seen = run(&post(&fake.url("/"), "{}"), &limits, TestGate::open()).await;
        let answer = seen.reply.unwrap_or_else(|| panic!("{name}: no reply, {:?}", seen.cause));
        assert_eq!((answer.status, answer.truncated, seen.complete), (200, true, true), "{name}");
        assert!(kept.contains(&answer.body.len()), "{name}: {}", answer.body.len());
    }
}

#[tokio::test]
async fn an_early_refusal_ends_the_writing_and_is_read() {
    let fake =
        Fake::play([vec![Step::Read(70_000), Step::Send(reply("413 Content Too Large", "{}")), Step::Hold]]).await;
    let gate = TestGate::holding();
    let seen = run(&post(&fake.url("/"), vec![b'x'; BIG]), &options(), gate.clone()).await;
    assert_eq!(seen.reply.as_ref().map(|r| r.status), Some(413), "{:?}", seen.cause);
    assert_eq!((seen.complete, seen.closed, gate.asked()), (false, Closed::Reset, 0));
}

#[tokio::test]
async fn an_early_yes_is_made_true_by_sending_the_rest() {
    let fake =
        Fake::play([vec![Step::Read(70_000), Step::Send(reply("200 OK", "{}")), Step::Request, Step::Close]]).await;
    let seen = run(&post(&fake.url("/"), vec![b'x'; BIG]), &options(), TestGate::open()).await;
    assert_eq!(seen.reply.as_ref().map(|r| r.status), Some(200), "{:?}", seen.cause);
    assert!(seen.complete);
    assert_eq!(fake.first().await.body().len(), BIG);
}

#[tokio::test]
async fn a_redirect_is_a_status_and_its_target_sees_nothing() {
    let target = Fake::answering(reply("200 OK", "{}")).await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let lines = format!("Location: {}\r\nRefresh: 0; url={}\r\n", target.url("/in"), target.url("/in"));
        let fake = Fake::answering(reply_with(status, &lines, "")).await;
        let seen = run(&post(&fake.url("/"), "{}"), &options(), TestGate::open()).await;
        assert_eq!(seen.reply.map(|r| r.status.to_string()), Some(status[..3].to_owned()));
        assert_eq!(fake.seen().len(), 1);
    }
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn dropping_an_exchange_resets_the_connection() {
    let fake = Fake::play([vec![Step::Request, Step::Hold]]).await;
    let request = post(&fake.url("/"), "{}");
    let sending = tokio::spawn(async move { exchange(&request, &options(), TestGate::open()).await });
    fake.wait_for(|all| all.first().is_some_and(|s| s.body() == b"{}")).await;
    sending.abort();
    assert!(fake.first().await.reset);
}

#[tokio::test]
async fn what_cannot_be_dialled_is_told_by_kind() {
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let seen = run(&post(&format!("http://{closed}/"), "{}"), &options(), TestGate::open()).await;
    assert!(matches!(seen.cause, Some(Cause::Dial(DialError::Refused { .. }))), "{:?}", seen.cause);
    assert_eq!((seen.stage, seen.closed, seen.bytes_handed), (Stage::Connect, Closed::NeverOpened, 0));

    let seen = run(&post("http://nowhere.invalid/", "{}"), &options(), TestGate::open()).await;
    assert!(matches!(seen.cause, Some(Cause::Dial(DialError::NotResolved { .. }))), "{:?}", seen.cause);

    // A peer that does not speak TLS, and one that says nothing.
    for script in [vec![Step::Read(1), Step::Send(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())], vec![Step::Hold]] {
        let fake = Fake::play([script]).await;
        let seen = run(&post(&format!("https://{}/", fake.address), "{}"), &options(), TestGate::open()).await;
        assert!(matches!(seen.cause, Some(Cause::Dial(DialError::Tls { .. }))), "{:?}", seen.cause);
        assert_eq!((seen.stage, seen.bytes_handed), (Stage::Tls, 0));
    }
}

#[tokio::test]
async fn a_get_asks_without_a_body_and_reads_the_answer_to_the_cap() {
    let fake = Fake::answering(reply("200 OK", r#"{"items":[]}"#)).await;
    let key = (HeaderName::from_static("x-api-key"), HeaderValue::from_static("k"));
    let seen = get(fake.url("/items?reference=INV-2291").parse().unwrap(), vec![key], &options()).await;
    assert_eq!(seen.reply.unwrap().body, br#"{"items":[]}"#);
    let there = fake.first().await;
    assert!(there.head().starts_with("GET /items?reference=INV-2291 HTTP/1.1"));
    assert_eq!((there.header("content-length"), there.header("x-api-key")), (None, Some("k".to_owned())));
}

#[tokio::test]
async fn through_tls_the_bytes_of_the_request_are_counted_and_the_last_one_waits() {
    for (size, yes) in [(20, true), (200_000, true), (200_000, false)] {
        let mut fake = TlsFake::start("127.0.0.1", 2100).await;
        let mut limits = options();
        limits.tls = dial::tls_config(Some(fake.ca.path()), &[b"http/1.1"]).unwrap();
        let gate = TestGate::holding();
        gate.answer(yes);
        let request = post(&format!("https://{}/", fake.address), vec![b'x'; size]);
        let seen = run(&request, &limits, gate).await;
        let there = tokio::time::timeout(Duration::from_secs(10), fake.taken.recv())
            .await
            .unwrap_or_else(|_| panic!("{size} {yes}: nothing arrived, {seen:?}"))
            .unwrap();
        assert!(there.bytes.len() as u64 <= seen.bytes_handed, "{size} {yes}");
        assert_eq!((seen.complete, there.goodbye), (yes, yes), "{size} {yes}: {:?}", seen.cause);
        if yes {
            assert_eq!(
                (there.bytes.len() as u64, seen.bytes_handed, seen.closed),
                (seen.bytes_needed, seen.bytes_needed, Closed::InOrder)
            );
        } else {
            assert_eq!((seen.bytes_handed + 1, seen.cause), (seen.bytes_needed, Some(Cause::SelfStop)));
        }
    }
}
