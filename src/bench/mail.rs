//! Mail: a relay on loopback that takes everything and counts, and lettre's pooled transport as the yardstick.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor, transport::smtp::PoolConfig};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{
    daemon::{Bench, Plan},
    load,
};
use crate::{store, telemetry::bar::Bar};

/// Mails through some connections.
#[derive(Debug, Clone, Serialize)]
pub struct Mails {
    /// Connections.
    pub connections: u32,
    /// Mails of the daemon.
    pub mails: u32,
    /// A second, from the first to the last.
    pub per_second: f64,
    /// lettre's pooled transport with as many connections, to the same relay.
    pub lettre_per_second: f64,
    /// The one to the other.
    pub to_lettre: f64,
    /// References that arrived more than once.
    pub doubled: usize,
    /// References that never arrived.
    pub lost: usize,
}

#[derive(Default)]
struct Taken {
    count: u64,
    doubled: usize,
    first: Option<Instant>,
    last: Option<Instant>,
    references: HashSet<String>,
}

/// Takes every mail.
pub(super) struct Relay {
    port: u16,
    taken: Arc<Mutex<Taken>>,
}

impl Relay {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let taken = Arc::new(Mutex::new(Taken::default()));
        let shared = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let taken = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A client that goes away ends its conversation, nothing else.
                    let _ended = converse(stream, &taken).await;
                });
            }
        });
        Ok(Self { port, taken })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn with<T>(&self, read: impl FnOnce(&mut Taken) -> T) -> T {
        read(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn converse(stream: TcpStream, taken: &Mutex<Taken>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 bench\r\n").await?;
    let mut line = Vec::new();
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let reply: &[u8] = match line.get(..4).map(<[u8]>::to_ascii_uppercase).as_deref() {
            Some(b"EHLO") => b"250-bench\r\n250-SIZE 1000000\r\n250 8BITMIME\r\n",
            Some(b"DATA") => {
                stream.write_all(b"354 go on\r\n").await?;
                let reference = message(&mut stream).await?;
                take(taken, reference);
                b"250 taken\r\n"
            }
            Some(b"QUIT") => return stream.write_all(b"221 bye\r\n").await,
            Some(_) | None => b"250 ok\r\n",
        };
        stream.write_all(reply).await?;
    }
}

/// Reads up to the final dot; the reference of the mail.
async fn message(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let (mut line, mut reference) = (Vec::new(), None);
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line == b".\r\n" {
            return Ok(reference);
        }
        if reference.is_none()
            && let Ok(text) = std::str::from_utf8(&line)
            && let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("x-settled-reference")
        {
            reference = Some(value.trim().to_owned());
        }
    }
}

fn take(taken: &Mutex<Taken>, reference: Option<String>) {
    let now = Instant::now();
    let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
    taken.count += 1;
    taken.first.get_or_insert(now);
    taken.last = Some(now);
    if reference.is_some_and(|reference| !taken.references.insert(reference)) {
        taken.doubled += 1;
    }
}

/// Mails a second of lettre's pooled transport.
async fn lettre(port: u16, connections: u32, lasting: Duration) -> anyhow::Result<f64> {
    let transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous("127.0.0.1")
        .port(port)
        .pool_config(PoolConfig::new().max_size(connections))
        .build();
    let message = Message::builder()
        .from("bench@bench.test".parse()?)
        .to("somebody@bench.test".parse()?)
        .subject("yardstick")
        .body("x".repeat(500))?;
    let began = Instant::now();
    let mut loops = JoinSet::new();
    for _ in 0..connections {
        let (transport, message) = (transport.clone(), message.clone());
        loops.spawn(async move {
            let mut sent = 0_u32;
            while began.elapsed() < lasting {
                transport.send(message.clone()).await?;
                sent += 1;
            }
            Ok::<_, lettre::transport::smtp::Error>(sent)
        });
    }
    let mut sent = 0;
    while let Some(done) = loops.join_next().await {
        sent += done??;
    }
    Ok(f64::from(sent) / began.elapsed().as_secs_f64())
}

/// A backlog of mails, sent by the daemon over so many connections.
pub(super) async fn drain(
    bench: &Bench,
    relay: &Relay,
    (connections, mails): (u32, u32),
    lasting: Duration,
    bar: &Bar,
) -> anyhow::Result<Mails> {
    bar.says(format!("mail, {connections} connections"));
    let lettre = lettre(relay.port, connections, lasting).await.context("lettre's transport to the relay")?;
    let destination = Plan::mail(connections);
    load::backlog(&bench.pool, &destination, &destination, mails).await?;
    relay.with(|taken| *taken = Taken::default());
    let before = store::bench::sent(&bench.pool).await?;
    let mut running = bench.start()?;
    let began = Instant::now();
    while relay.with(|taken| taken.count) < u64::from(mails) && began.elapsed() < Duration::from_secs(120) {
        running.check()?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bench.settled(before, mails, Duration::from_secs(60)).await?;
    running.stop().await?;
    let (span, doubled, distinct) = relay.with(|taken| {
        let span = taken.first.zip(taken.last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64());
        (span, taken.doubled, taken.references.len())
    });
    let per_second = f64::from(mails) / span.max(0.001);
    let lost = (mails as usize).saturating_sub(distinct);
    Ok(Mails {
        connections,
        mails,
        per_second,
        lettre_per_second: lettre,
        to_lettre: per_second / lettre,
        doubled,
        lost,
    })
}
