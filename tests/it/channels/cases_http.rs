//! Public bug reports about sending over HTTP, as cases: DUP, REDIR, SSRF by redirect, BODY, TRANS.

use std::{io::Write, time::Duration};

use super::{
    fake::{BIG, Fake, Step, TestGate, reply, reply_with},
    tls::TlsFake,
    webhook::{destination, outgoing, plain, send},
};
use serde_json::json;
use settled::{
    channels::{Channel, webhook::Webhook},
    domain::{
        intent::Outgoing,
        outcome::{DoubtKind, Ended, Outcome, Proof},
    },
};

const UNCLEAR: Outcome = Outcome::Ambiguous { doubt: DoubtKind::UnclearReply };
const SENT: Outcome = Outcome::Sent { provider_id: None };

async fn answered(bytes: impl Into<Vec<u8>>) -> (Ended, Fake) {
    let fake = Fake::answering(bytes).await;
    let ended = send(&plain(&fake.url("/hook")), &outgoing("{}")).await;
    assert_eq!(fake.seen().len(), 1, "one request");
    (ended, fake)
}

#[tokio::test]
async fn case_008_ids_are_equal_on_both_attempts_and_only_the_stamp_differs() {
    let scripts = [reply("503 Service Unavailable", ""), reply("200 OK", "{}")];
    let fake = Fake::play(scripts.map(|r| vec![Step::Request, Step::Send(r), Step::Close])).await;
    let channel = plain(&fake.url("/"));
    assert_eq!(send(&channel, &outgoing("{}")).await.outcome, UNCLEAR);
    assert_eq!(send(&channel, &Outgoing { attempt: 2, ..outgoing("{}") }).await.outcome, SENT);
    let seen = fake.wait_for(|all| all.len() == 2 && all.iter().all(|s| s.over)).await;
    for name in ["webhook-id", "idempotency-key", "settled-reference"] {
        assert!(seen[0].header(name).is_some());
        assert_eq!(seen[0].header(name), seen[1].header(name), "{name}");
    }
    assert_eq!(seen[0].body(), seen[1].body());
}

#[tokio::test]
async fn case_045_a_redirect_to_a_log_in_page_is_not_followed_and_not_sent() {
    for status in ["301 Moved Permanently", "302 Found", "303 See Other"] {
        let (ended, _fake) = answered(reply_with(status, "Location: /login\r\n", "")).await;
        assert_eq!(ended.outcome, UNCLEAR, "{status}");
        assert!(ended.report.cause.unwrap().contains("not followed"));
    }
}

#[tokio::test]
async fn case_047_only_a_2xx_is_success_and_the_new_host_is_named() {
    for (bytes, outcome) in [
        (b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec(), UNCLEAR),
        (reply("300 Multiple Choices", ""), UNCLEAR),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n".to_vec(), UNCLEAR),
        (b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), SENT),
        (reply("202 Accepted", "{}"), SENT),
    ] {
        assert_eq!(answered(bytes.clone()).await.0.outcome, outcome, "{}", String::from_utf8_lossy(&bytes));
    }
    let there = reply_with("307 Temporary Redirect", "Location: https://www.mock.test/hook\r\n", "");
    let (ended, _fake) = answered(there).await;
    assert_eq!(ended.outcome, UNCLEAR);
    assert!(ended.report.cause.unwrap().contains("https://www.mock.test"));
}

#[tokio::test]
async fn case_048_a_definite_no_is_refused_with_status_and_excerpt() {
    for (status, code) in [("404 Not Found", 404), ("410 Gone", 410), ("422 Unprocessable Content", 422)] {
        let (ended, _fake) = answered(reply(status, r#"{"error":"no such hook"}"#)).await;
        assert_eq!(ended.outcome, Outcome::Refused { code });
        assert_eq!(
            (ended.report.code, ended.report.excerpt.as_deref()),
            (Some(code), Some(r#"{"error":"no such hook"}"#))
        );
    }
    let (ended, _fake) = answered(reply("401 Unauthorized", "")).await;
    assert_eq!(ended.outcome, Outcome::NotSent { proof: Proof::Parked, retry_after: None });
}

#[tokio::test]
async fn case_053_and_054_a_redirect_leads_nowhere_and_carries_no_credentials_there() {
    let inside = Fake::answering(reply("200 OK", "{}")).await;
    for status in ["307 Temporary Redirect", "308 Permanent Redirect", "200 OK"] {
        let lines = format!(
            "Location: {}\r\nRefresh: 0; url={}\r\n",
            inside.url("/latest/meta-data/"),
            inside.url("/latest/meta-data/")
        );
        answered(reply_with(status, &lines, "")).await;
    }
    assert!(inside.seen().is_empty());
}

#[tokio::test]
async fn case_057_a_bomb_in_the_answer_is_sent_and_cut() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![b'0'; 1 << 20];
    for _ in 0..16 {
        bomb.write_all(&zeros).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    for encoding in ["gzip", "br", "zstd", "gzip, gzip"] {
        let mut bytes =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n", bomb.len())
                .into_bytes();
        bytes.extend(&bomb);
        let (ended, _fake) = answered(bytes).await;
        assert_eq!(ended.outcome, SENT, "{encoding}");
        assert!(ended.report.excerpt.unwrap().chars().count() <= 500);
    }
}

#[tokio::test]
async fn case_058_a_trickling_answer_is_sent_and_a_trickling_head_is_a_doubt() {
    let every = Duration::from_millis(40);
    let forever = |text: &str| Step::Trickle(text.repeat(40).into_bytes(), every);
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for (script, outcome) in [
        (vec![Step::Request, Step::Send(b"HTTP/1.1 200 OK\r\nX-A: ".to_vec()), forever("a")], None),
        (vec![Step::Request, Step::Send(head), forever("1\r\na\r\n")], Some(SENT)),
        (vec![Step::Request, Step::Hold], None),
    ] {
        let fake = Fake::play([script]).await;
        let ended = send(&plain(&fake.url("/")), &outgoing("{}")).await;
        assert_eq!(ended.outcome, outcome.unwrap_or(Outcome::Ambiguous { doubt: DoubtKind::NoReply }));
        assert!(ended.report.millis < 5_000);
    }
}

#[tokio::test]
async fn case_059_more_header_lines_than_can_be_read_are_a_doubt() {
    let many: String = (1..=101).map(|n| format!("X-{n}: a\r\n")).collect();
    let huge = format!("X-Huge: {}\r\n", "a".repeat(500_000));
    for lines in [many, huge] {
        let fake = Fake::play([vec![Step::Request, Step::Send(reply_with("200 OK", &lines, "")), Step::Hold]]).await;
        let ended = send(&plain(&fake.url("/")), &outgoing("{}")).await;
        assert_eq!(ended.outcome, UNCLEAR);
        assert_eq!(fake.seen().len(), 1);
    }
}

#[tokio::test]
async fn case_061_an_empty_or_odd_2xx_is_sent() {
    for bytes in [reply_with("200 OK", "", ""), b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), reply("201 Created", "ok")]
    {
        assert_eq!(answered(bytes).await.0.outcome, SENT);
    }
}

#[tokio::test]
async fn case_062_a_no_inside_a_200_is_found_by_a_rule_of_the_destination() {
    let body = r#"{"ok":false,"error":"channel_not_found"}"#;
    let fake = Fake::answering(reply("200 OK", body)).await;
    let with = |rule| {
        let settings = json!({"url": fake.url("/"), "reply": rule});
        Webhook::build(&destination(settings, json!({}))).unwrap()
    };
    let refused = with(json!({"refused_when": {"json": {"pointer": "/ok", "equals": false}}}));
    assert_eq!(send(&refused, &outgoing("{}")).await.outcome, Outcome::Refused { code: 200 });
    let strict = with(json!({"sent_when": {"json": {"pointer": "/ok", "equals": true}}}));
    assert_eq!(send(&strict, &outgoing("{}")).await.outcome, UNCLEAR);
    let plain = send(&with(json!({})), &outgoing("{}")).await;
    assert_eq!((plain.outcome, plain.report.excerpt.as_deref()), (SENT, Some(body)));
}

#[tokio::test]
async fn case_063_a_413_in_mid_body_is_refused_where_it_can_be_read_and_incomplete_where_not() {
    let large = outgoing(format!("\"{}\"", "x".repeat(BIG)));
    let readable = [Step::Read(1_000), Step::Send(reply("413 Content Too Large", "")), Step::Stall];
    let torn = [Step::Read(1_000), Step::Reset];
    for (script, outcome) in [
        (readable.to_vec(), Outcome::Refused { code: 413 }),
        (torn.to_vec(), Outcome::NotSent { proof: Proof::Incomplete, retry_after: None }),
    ] {
        let fake = Fake::play([script]).await;
        let ended = send(&plain(&fake.url("/")), &large).await;
        assert_eq!(ended.outcome, outcome, "{:?}", ended.report);
    }
}

#[tokio::test]
async fn case_065_a_request_that_was_read_and_not_answered_is_one_request_and_a_doubt() {
    let fake = Fake::play([vec![Step::Request, Step::Close]]).await;
    let ended = send(&plain(&fake.url("/")), &outgoing("{}")).await;
    assert_eq!(ended.outcome, Outcome::Ambiguous { doubt: DoubtKind::ConnectionLost });
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test]
async fn case_068_a_failed_handshake_is_not_sent_with_its_reason_and_a_ca_file_works() {
    for (name, year, trusted, outcome, words) in [
        ("127.0.0.1", 2100, true, SENT, ""),
        ("127.0.0.1", 2100, false, Outcome::NotSent { proof: Proof::TlsFailed, retry_after: None }, "UnknownIssuer"),
        ("127.0.0.1", 2021, true, Outcome::NotSent { proof: Proof::TlsFailed, retry_after: None }, "expired"),
        (
            "other.test",
            2100,
            true,
            Outcome::NotSent { proof: Proof::TlsFailed, retry_after: None },
            "not valid for name",
        ),
    ] {
        let fake = TlsFake::start(name, year).await;
        let more = if trusted { json!({"ca_file": fake.ca.path()}) } else { json!({}) };
        let settings = json!({"url": format!("https://{}/", fake.address)});
        let channel = Webhook::build(&destination(settings, more)).unwrap();
        let out = outgoing("{}");
        let ended = channel.send(channel.prepare(&out).unwrap(), &out, TestGate::open()).await;
        assert_eq!(ended.outcome, outcome, "{name} {year} {trusted}: {:?}", ended.report);
        let cause = ended.report.cause.unwrap_or_default();
        assert!(cause.contains(words), "{cause}");
    }
}

/// What a client offers in its hello, and whether it went on after a server that speaks HTTP/2 alone.
async fn insisting_on_h2(
    listener: tokio::net::TcpListener,
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
) -> (Vec<Vec<u8>>, bool) {
    let (tcp, _) = listener.accept().await.unwrap();
    let acceptor = rustls::server::Acceptor::default();
    let start = tokio_rustls::LazyConfigAcceptor::new(acceptor, tcp).await.unwrap();
    let offered = start.client_hello().alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (offered, start.into_stream(std::sync::Arc::new(config)).await.is_ok())
}

#[tokio::test]
async fn case_060_and_066_and_067_http_2_is_not_offered_and_a_server_that_insists_on_it_gets_nothing() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let mut ca = tempfile::NamedTempFile::new().unwrap();
    ca.write_all(made.cert.pem().as_bytes()).unwrap();
    let server = tokio::spawn(insisting_on_h2(listener, made));
    let settings = json!({"url": format!("https://{address}/")});
    let channel = Webhook::build(&destination(settings, json!({"ca_file": ca.path()}))).unwrap();
    let ended = send(&channel, &outgoing("{}")).await;
    assert_eq!(ended.outcome, Outcome::NotSent { proof: Proof::TlsFailed, retry_after: None }, "{:?}", ended.report);
    assert_eq!(ended.report.bytes_handed, 0);
    let (offered, went_on) = server.await.unwrap();
    assert_eq!((offered, went_on), (vec![b"http/1.1".to_vec()], false));
}

#[tokio::test]
async fn case_066_and_067_frames_of_http_2_are_no_reply_whatever_they_claim() {
    let settings = b"\0\0\0\x04\0\0\0\0\0".to_vec();
    // GOAWAY with the last stream 0 and 1; RST_STREAM of stream 1 with REFUSED_STREAM.
    let goaway = |last: u8| [&b"\0\0\x08\x07\0\0\0\0\0\0\0\0"[..], &[last], b"\0\0\0\0"].concat();
    let refused = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x07".to_vec();
    for frame in [goaway(0), goaway(1), refused] {
        let (ended, fake) = answered([settings.clone(), frame].concat()).await;
        assert_eq!(ended.outcome, UNCLEAR, "it was read to its end, so it may have been done: {:?}", ended.report);
        assert_eq!(fake.seen().len(), 1);
    }
}
