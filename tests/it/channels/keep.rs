//! Connections that are kept for the next request: when, for whom, and what a dead one costs.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use settled::{
    channels::{
        Channel,
        webhook::Webhook,
        wire::{
            dial,
            http1::{Closed, Exchange, Keep, Options, Request, exchange, get},
        },
    },
    domain::{
        gate::{BoxFuture, Gate},
        outcome::{DoubtKind, Ended, Outcome, Proof},
    },
};
use tokio::sync::Notify;

use super::{
    fake::{BIG, Fake, Step, TestGate, reply, reply_with, requests},
    tls::TlsFake,
    webhook::{destination, outgoing, send},
    wire_exchange::options,
};

const SENT: Outcome = Outcome::Sent { provider_id: None };
const LOST: Outcome = Outcome::Ambiguous { doubt: DoubtKind::ConnectionLost };

/// A channel that keeps its connections.
fn keeping(url: &str) -> Webhook {
    let more = json!({"limits": {"keep_idle": "1m"}});
    Webhook::build(&destination(json!({"url": url}), more)).unwrap()
}

fn yes() -> Step {
    Step::Send(reply("200 OK", "{}"))
}

fn kept() -> Options {
    let keep = Keep::new(Duration::from_secs(60), Duration::from_secs(60), 8);
    Options { keep: Some(Arc::new(keep)), ..options() }
}

async fn post(url: &str, options: &Options, gate: Arc<dyn Gate>) -> Exchange {
    post_with(url, "{}".into(), options, gate).await
}

async fn post_with(url: &str, body: bytes::Bytes, options: &Options, gate: Arc<dyn Gate>) -> Exchange {
    let request = Request { method: http::Method::POST, url: url.parse().unwrap(), headers: vec![], body };
    exchange(&request, options, gate).await
}

fn closed(ended: &Ended) -> &str {
    ended.report.closed.as_deref().unwrap()
}

#[tokio::test]
async fn case_064_a_kept_connection_that_closes_as_the_next_request_arrives_never_doubles_it() {
    for round in 0..200 {
        // Closed with the request unread; closed after it was read and acted upon; closed at some moment around it.
        let arrived = Fake::play([vec![Step::Request, yes(), Step::Arrives, Step::Close]]).await;
        let acted = Fake::play([vec![Step::Request, yes(), Step::Again, Step::Close]]).await;
        let early = Fake::play([vec![Step::Request, yes(), Step::Close]]).await;
        for (fake, outcome) in [(arrived, Some(LOST)), (acted, Some(LOST)), (early, None)] {
            let channel = keeping(&fake.url("/"));
            let first = send(&channel, &outgoing(r#"{"n":1}"#)).await;
            assert_eq!(first.outcome, SENT);
            let second = send(&channel, &outgoing(r#"{"n":2}"#)).await;
            let seen = fake.wait_for(|all| all.iter().all(|s| s.over)).await;
            let second_seen = seen.iter().map(|s| requests(&s.bytes)).sum::<usize>() - 1;
            match outcome {
                Some(outcome) => {
                    assert_eq!((&second.outcome, seen.len()), (&outcome, 1), "{round}: {:?}", second.report);
                }
                // A dead connection that was noticed in time is replaced; noticed too late, it is a doubt.
                None if second.outcome == SENT => assert_eq!((second_seen, seen.len()), (1, 2), "{round}"),
                None => assert_eq!((second.outcome, second_seen), (LOST, 0), "{round}: {:?}", second.report),
            }
        }
    }
}

#[tokio::test]
async fn a_connection_is_kept_only_after_a_whole_answer_that_allows_it() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_vec();
    let mut more = reply("200 OK", "{}");
    more.extend(reply("200 OK", "{}"));
    for (name, answer, connections) in [
        ("length", reply("200 OK", "{}"), 1),
        ("chunks", chunked, 1),
        ("no content", b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), 1),
        ("refusal", reply("422 Unprocessable Content", "{}"), 1),
        ("long enough", reply_with("200 OK", "Keep-Alive: timeout=5, max=99\r\n", "{}"), 1),
        ("too short", reply_with("200 OK", "Keep-Alive: timeout=1\r\n", "{}"), 2),
        ("the last", reply_with("200 OK", "Keep-Alive: timeout=5, max=0\r\n", "{}"), 2),
        ("unreadable limit", reply_with("200 OK", "Keep-Alive: timeout=soon\r\n", "{}"), 2),
        ("close", reply_with("200 OK", "Connection: x, Close\r\n", "{}"), 2),
        ("HTTP/1.0", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}".to_vec(), 2),
        ("more than one answer", more, 2),
        ("broken compression", reply_with("200 OK", "Content-Encoding: gzip\r\n", "no gzip"), 2),
    ] {
        let answer = Step::Send(answer);
        let fake = Fake::play([vec![Step::Request, answer.clone(), Step::Again, answer, Step::Hold]]).await;
        let channel = keeping(&fake.url("/"));
        for n in 0..2 {
            let ended = send(&channel, &outgoing("{}")).await;
            assert!(ended.report.code.is_some(), "{name}, {n}: {:?}", ended.report);
            assert_eq!(closed(&ended) == "kept", connections == 1, "{name}, {n}: {:?}", ended.report);
        }
        assert_eq!(fake.seen().len(), connections, "{name}");
    }
}

#[tokio::test]
async fn a_destination_that_cannot_be_asked_gets_a_connection_for_each_request_unless_it_says_otherwise() {
    let fake = Fake::play([vec![Step::Request, yes(), Step::Again, yes(), Step::Hold]]).await;
    let url = fake.url("/");
    let asked = json!({"replay": {"key_lifetime": "1d", "margin": "1m"}});
    for (more, header, connections) in
        [(json!({}), Some("close"), 2), (json!({"limits": {"keep_idle": "4s"}}), None, 1), (asked, None, 1)]
    {
        let before = fake.seen().len();
        let channel = Webhook::build(&destination(json!({"url": url}), more)).unwrap();
        for _ in 0..2 {
            assert_eq!(send(&channel, &outgoing("{}")).await.outcome, SENT);
        }
        let seen = fake.seen();
        assert_eq!(seen.len() - before, connections);
        assert_eq!(seen[before].header("connection").as_deref(), header);
    }
}

/// Closes the kept connection while it is asked about the last bytes.
struct Meanwhile {
    close: Arc<Notify>,
    fake: Arc<Fake>,
    asked: std::sync::atomic::AtomicU32,
}

impl Gate for Meanwhile {
    fn is_open(&self) -> bool {
        true
    }

    fn remaining(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn last_bytes(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            self.asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            self.close.notify_one();
            self.fake.wait_for(|all| all[0].over).await;
            true
        })
    }
}

#[tokio::test]
async fn a_kept_connection_that_died_before_the_first_byte_is_replaced_and_the_gate_is_asked_again() {
    let close = Arc::new(Notify::new());
    let first = vec![Step::Request, yes(), Step::Until(Arc::clone(&close)), Step::Close];
    let fake = Arc::new(Fake::play([first, vec![Step::Request, yes(), Step::Hold]]).await);
    let options = kept();
    let one = post(&fake.url("/"), &options, TestGate::open()).await;
    assert_eq!(one.closed, Closed::Kept);
    let gate = Arc::new(Meanwhile { close, fake: Arc::clone(&fake), asked: 0.into() });
    let two = post(&fake.url("/"), &options, gate.clone()).await;
    assert_eq!(two.reply.as_ref().map(|r| r.status), Some(200), "{:?}", two.cause);
    assert_eq!((two.closed, two.bytes_handed), (Closed::Kept, two.bytes_needed));
    assert_eq!(gate.asked.load(std::sync::atomic::Ordering::SeqCst), 2);
    let seen = fake.seen();
    assert_eq!(seen.iter().map(|s| requests(&s.bytes)).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn a_gate_that_says_no_leaves_the_kept_connection_reset_and_nothing_of_the_request_there() {
    let fake = Fake::play([vec![Step::Request, yes(), Step::Hold]]).await;
    let channel = keeping(&fake.url("/"));
    assert_eq!(closed(&send(&channel, &outgoing("{}")).await), "kept");
    let gate = TestGate::holding();
    gate.answer(false);
    let second = outgoing("{}");
    let ended = channel.send(channel.prepare(&second).unwrap(), &second, gate).await;
    assert_eq!(ended.outcome, Outcome::NotSent { proof: Proof::SelfStopped, retry_after: None });
    assert_eq!((ended.report.bytes_handed, closed(&ended)), (0, "reset"));
    let seen = fake.first().await;
    assert_eq!((seen.reset, requests(&seen.bytes)), (true, 1));
    // A gate that is closed from the start does not even touch the next one.
    assert_eq!(closed(&send(&channel, &outgoing("{}")).await), "kept");
    let shut = TestGate::open();
    shut.shut();
    let ended = channel.send(channel.prepare(&second).unwrap(), &second, shut).await;
    assert_eq!(ended.report.bytes_handed, 0);
    assert_eq!(fake.seen().len(), 2);
}

#[tokio::test]
async fn each_exchange_has_its_own_count_and_its_own_gate() {
    let fake = Fake::play([vec![Step::Request, yes(), Step::Again, yes(), Step::Again, Step::Hold]]).await;
    let options = kept();
    let first = TestGate::open();
    let one = post(&fake.url("/"), &options, first.clone()).await;
    // The first exchange's gate is over; it is not the second's.
    first.shut();
    let body = bytes::Bytes::from(vec![b'x'; 40_000]);
    let two = post_with(&fake.url("/"), body, &options, TestGate::open()).await;
    for (seen, size) in [(&one, 2), (&two, 40_000)] {
        assert!(seen.complete && seen.reply.is_some(), "{:?}", seen.cause);
        assert_eq!((seen.bytes_handed, seen.closed), (seen.bytes_needed, Closed::Kept));
        assert!((size..size + 200).contains(&seen.bytes_handed), "{}", seen.bytes_handed);
    }
    // On a kept connection too a request that stays unfinished is thrown away with a reset.
    let gate = TestGate::holding();
    gate.answer(false);
    let three = post_with(&fake.url("/"), vec![b'x'; BIG / 8].into(), &options, gate).await;
    assert!(!three.complete && three.bytes_handed > 0, "{:?}", three.cause);
    assert_eq!(three.closed, Closed::Reset);
    let seen = fake.first().await;
    assert_eq!((seen.reset, requests(&seen.bytes), fake.seen().len()), (true, 2, 1));
}

#[tokio::test]
async fn nothing_is_shared_between_channels_questions_hosts_or_tls_settings() {
    let fake = Fake::play([vec![Step::Request, yes(), Step::Again, yes(), Step::Hold]]).await;
    let (one, other) = (keeping(&fake.url("/")), keeping(&fake.url("/")));
    for channel in [&one, &other] {
        assert_eq!(closed(&send(channel, &outgoing("{}")).await), "kept");
    }
    let question = get(fake.url("/").parse().unwrap(), vec![], &options()).await;
    assert_eq!((question.closed, fake.seen().len()), (Closed::InOrder, 3));

    let mut server = TlsFake::start("localhost", 2040).await;
    let port = server.address.port();
    let settings = || dial::tls_config(Some(server.ca.path()), &[b"http/1.1"]).unwrap();
    let first = Options { tls: settings(), ..kept() };
    let second = Options { tls: settings(), ..first.clone() };
    let url = format!("https://localhost:{port}/");
    for (options, what) in [(&first, "fresh"), (&first, "kept"), (&second, "other settings")] {
        let seen = post(&url, options, TestGate::open()).await;
        assert_eq!((seen.closed, seen.bytes_handed), (Closed::Kept, seen.bytes_needed), "{what}: {:?}", seen.cause);
    }
    drop((first, second));
    let mut counts = vec![];
    for _ in 0..2 {
        counts.push(requests(&server.taken.recv().await.unwrap().bytes));
    }
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_order_after_a_while_and_an_old_one_is_not_reused() {
    let fake = Fake::play([vec![Step::Request, yes(), Step::Hold]]).await;
    let more = |limits| json!({"limits": limits});
    let short = more(json!({"keep_idle": "50ms"}));
    let channel = Webhook::build(&destination(json!({"url": fake.url("/")}), short)).unwrap();
    assert_eq!(closed(&send(&channel, &outgoing("{}")).await), "kept");
    assert!(!fake.first().await.reset);

    let old = more(json!({"keep_idle": "1m", "keep_age": "0s"}));
    let channel = Webhook::build(&destination(json!({"url": fake.url("/")}), old)).unwrap();
    for _ in 0..2 {
        assert_eq!(closed(&send(&channel, &outgoing("{}")).await), "closed");
    }
    assert_eq!(fake.seen().len(), 3);
}

#[tokio::test]
async fn no_more_is_kept_than_allowed_and_at_an_address_that_is_no_longer_allowed_nothing_is() {
    let fake = Fake::play([vec![Step::Request, yes(), Step::Again, yes(), Step::Hold]]).await;
    let keep = Keep::new(Duration::from_secs(60), Duration::from_secs(60), 1);
    let options = Options { keep: Some(Arc::new(keep)), ..options() };
    let (one, two) = (TestGate::holding(), TestGate::holding());
    let url = fake.url("/");
    let both = async {
        one.wait_asked().await;
        two.wait_asked().await;
        one.answer(true);
        two.answer(true);
    };
    let (a, b, ()) = tokio::join!(post(&url, &options, one.clone()), post(&url, &options, two.clone()), both);
    let mut ends = [a.closed, b.closed].map(|c| c.as_str());
    ends.sort_unstable();
    assert_eq!(ends, ["closed", "kept"]);

    let strict = Options { allow_addresses: vec![], ..options };
    let refused = post(&url, &strict, TestGate::open()).await;
    assert_eq!((refused.closed, refused.bytes_handed), (Closed::NeverOpened, 0), "{:?}", refused.cause);
}
