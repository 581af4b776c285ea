//! Kept connections: the next mail goes over one whose last mail was taken, and over no other.

use std::{net::SocketAddr, time::Duration};

use serde_json::json;
use settled::{
    channels::smtp::Smtp,
    domain::outcome::{DoubtKind, Ended, Outcome, Proof},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::support::{
    gates::TestGate,
    mail::{build, destination, outgoing, payload, send},
};

const SOON: Duration = Duration::from_secs(20);

/// What a connection does once its first mail was answered.
#[derive(Clone, Copy)]
enum After {
    GoOn,
    SayAndClose(&'static str),
    Close,
    Swallow,
}

/// How one connection is served.
#[derive(Clone, Copy)]
struct Plan {
    after: After,
    /// The reply to MAIL of every mail but the first.
    next_mail: &'static str,
    /// The reply to the final dot; empty for silence.
    dot: &'static str,
}

const GOOD: Plan = Plan { after: After::GoOn, next_mail: "250 Ok", dot: "250 2.0.0 Ok: queued as 4F2A31C0D2" };

#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// Connection and line.
    Line(usize, String),
    /// A whole message.
    Mail(usize),
    /// It did what comes after.
    Did(usize),
    /// The other side is gone.
    Over(usize),
}

struct Relay {
    address: SocketAddr,
    told: mpsc::UnboundedReceiver<Told>,
}

impl Relay {
    /// One plan for each connection, in order; the rest is good.
    async fn start(plans: Vec<Plan>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (plan, tell) = (plans.get(number).copied().unwrap_or(GOOD), tell.clone());
                tokio::spawn(async move {
                    let _lost = serve(stream, number, plan, &tell).await;
                    let _test_is_over = tell.send(Told::Over(number));
                });
            }
        });
        Self { address, told }
    }

    /// Everything up to this.
    async fn until(&mut self, wanted: Told) -> Vec<Told> {
        let mut all = Vec::new();
        loop {
            let told = tokio::time::timeout(SOON, self.told.recv()).await.expect("it is told").unwrap();
            let found = told == wanted;
            all.push(told);
            if found {
                return all;
            }
        }
    }

    fn so_far(&mut self) -> Vec<Told> {
        std::iter::from_fn(|| self.told.try_recv().ok()).collect()
    }
}

async fn serve(
    stream: TcpStream,
    number: usize,
    plan: Plan,
    tell: &mpsc::UnboundedSender<Told>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut mails = 0;
    stream.write_all(b"220 relay.test\r\n").await?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let line = line.trim_end().to_owned();
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_owned();
        let _test_is_over = tell.send(Told::Line(number, line));
        let reply = match verb.as_str() {
            "EHLO" => "250-relay.test\r\n250 HELP",
            "MAIL" if mails > 0 => plan.next_mail,
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await?;
                let mut message = Vec::new();
                while !message.ends_with(b"\r\n.\r\n") {
                    if stream.read_until(b'\n', &mut message).await? == 0 {
                        return Ok(());
                    }
                }
                mails += 1;
                let _test_is_over = tell.send(Told::Mail(number));
                if plan.dot.is_empty() {
                    std::future::pending::<()>().await;
                }
                stream.write_all(format!("{}\r\n", plan.dot).as_bytes()).await?;
                if mails == 1 {
                    after(stream.get_mut(), number, plan.after, tell).await?;
                    if matches!(plan.after, After::SayAndClose(_) | After::Close) {
                        return Ok(());
                    }
                }
                continue;
            }
            "QUIT" => return stream.write_all(b"221 bye\r\n").await,
            _ => "250 Ok",
        };
        stream.write_all(format!("{reply}\r\n").as_bytes()).await?;
    }
}

async fn after(
    stream: &mut TcpStream,
    number: usize,
    after: After,
    tell: &mpsc::UnboundedSender<Told>,
) -> std::io::Result<()> {
    match after {
        After::GoOn => {}
        After::SayAndClose(text) => {
            stream.write_all(format!("{text}\r\n").as_bytes()).await?;
            stream.shutdown().await?;
        }
        After::Close => stream.shutdown().await?,
        After::Swallow => {
            let _test_is_over = tell.send(Told::Did(number));
            std::future::pending::<()>().await;
        }
    }
    let _test_is_over = tell.send(Told::Did(number));
    Ok(())
}

fn keeping(relay: &Relay, keep_for: &str) -> Smtp {
    let mut destination = destination(relay.address, json!({"keep_for": keep_for, "keep_uses": 3}));
    destination["timeouts"]["command"] = "400ms".into();
    build(destination)
}

async fn one(channel: &Smtp) -> Ended {
    send(channel, &outgoing(&payload()), TestGate::open()).await
}

fn is_sent(ended: &Ended) -> bool {
    matches!(ended.outcome, Outcome::Sent { .. })
}

#[tokio::test]
async fn case_074_a_kept_connection_that_the_relay_has_ended_is_replaced_within_the_attempt() {
    for after in [
        After::SayAndClose("221 2.0.0 closing"),
        After::SayAndClose("451 4.4.2 timeout"),
        After::SayAndClose("421 4.4.2 timeout"),
        After::Close,
        After::Swallow,
    ] {
        let mut relay = Relay::start(vec![Plan { after, ..GOOD }]).await;
        let channel = keeping(&relay, "1m");
        assert!(is_sent(&one(&channel).await));
        relay.until(Told::Did(0)).await;
        let second = one(&channel).await;
        assert!(is_sent(&second), "{second:?}");
        let told = relay.until(Told::Mail(1)).await;
        assert!(!told.contains(&Told::Mail(0)), "one copy each: {told:?}");
    }
}

#[tokio::test]
async fn the_next_mails_go_over_the_kept_connection_up_to_its_number_of_uses() {
    let mut relay = Relay::start(Vec::new()).await;
    let channel = keeping(&relay, "1m");
    for mail in 0..4 {
        let ended = one(&channel).await;
        assert!(is_sent(&ended), "{mail}");
        assert_eq!(ended.report.peer, Some(relay.address.to_string()));
        let closed = if mail == 2 { "closed" } else { "kept" };
        assert_eq!(ended.report.closed.as_deref(), Some(closed));
        assert_eq!(ended.report.bytes_handed, ended.report.bytes_needed, "bytes of this mail alone");
    }
    let told = relay.until(Told::Mail(1)).await;
    let lines = |number: usize, verb: &str| {
        told.iter().filter(|t| matches!(t, Told::Line(n, line) if *n == number && line.starts_with(verb))).count()
    };
    assert_eq!((lines(0, "EHLO"), lines(0, "RSET"), lines(0, "MAIL"), lines(0, "QUIT")), (1, 2, 3, 1));
    assert_eq!((lines(1, "EHLO"), lines(1, "MAIL")), (1, 1));
}

#[tokio::test]
async fn a_relay_that_has_had_enough_of_a_kept_connection_gets_the_mail_over_a_fresh_one() {
    for enough in ["421 4.7.0 too many messages on this connection", ""] {
        let plan = Plan { next_mail: enough, ..GOOD };
        let mut relay = Relay::start(vec![plan]).await;
        let channel = keeping(&relay, "1m");
        assert!(is_sent(&one(&channel).await));
        let second = one(&channel).await;
        assert!(is_sent(&second), "{second:?}");
        let told = relay.until(Told::Mail(1)).await;
        assert_eq!(told.iter().filter(|t| matches!(t, Told::Mail(_))).count(), 2);
    }
    // Any other answer is one to this mail.
    let relay = Relay::start(vec![Plan { next_mail: "550 5.7.1 not you", ..GOOD }]).await;
    let channel = keeping(&relay, "1m");
    assert!(is_sent(&one(&channel).await));
    assert_eq!(one(&channel).await.outcome, Outcome::Refused { code: 550 });
}

#[tokio::test]
async fn no_connection_is_kept_after_anything_but_a_yes_to_the_final_dot() {
    for (dot, wanted) in [
        ("554 5.7.1 spam", Outcome::Refused { code: 554 }),
        ("451 4.3.0 later", Outcome::NotSent { proof: Proof::Deferred, retry_after: Some(300) }),
        ("", Outcome::Ambiguous { doubt: DoubtKind::NoReply }),
        ("what?", Outcome::Ambiguous { doubt: DoubtKind::UnclearReply }),
        ("250 Ok\r\n250 once more", Outcome::Sent { provider_id: None }),
    ] {
        let mut relay = Relay::start(vec![Plan { dot, ..GOOD }]).await;
        let mut destination = destination(relay.address, json!({"keep_for": "1m"}));
        destination["timeouts"]["final_dot"] = "300ms".into();
        let channel = build(destination);
        assert_eq!(one(&channel).await.outcome, wanted, "{dot}");
        assert!(is_sent(&one(&channel).await), "{dot}");
        let told = relay.until(Told::Mail(1)).await;
        assert!(!told.iter().any(|t| matches!(t, Told::Line(0, line) if line == "RSET")), "{dot}: {told:?}");
    }
}

#[tokio::test]
async fn a_connection_that_nobody_needs_is_closed_in_order() {
    let mut relay = Relay::start(Vec::new()).await;
    let channel = keeping(&relay, "50ms");
    assert!(is_sent(&one(&channel).await));
    let told = relay.until(Told::Over(0)).await;
    assert!(told.contains(&Told::Line(0, "QUIT".to_owned())), "{told:?}");
    assert!(is_sent(&one(&channel).await));
    relay.until(Told::Mail(1)).await;
    let _rest = relay.so_far();
}
