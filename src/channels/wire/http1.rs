//! One HTTP/1.1 exchange on one fresh connection.
//!
//! Used by the webhook and SMS channels and by every HTTP look-up. What must hold: one connection and one request for one
//! call; no redirect is followed, nothing is sent twice; the length is always declared; the last byte waits for the gate, and
//! after a refusal or a limit the connection is reset. What the caller learns is a value: [`Exchange`] says how far it came.

mod answer;
mod held;

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use hyper::{body::Incoming, client::conn::http1 as h1};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::time::timeout;

use super::{
    AlwaysOpen,
    counted::{Counted, Counter, Stream},
    dial::{self, DialError, Resolve, SystemResolver, Target, TlsSetupError},
};
use crate::{
    config::destination::{Destination, Timeouts},
    domain::{gate::Gate, outcome::Stage},
};
use held::{Flags, HeldBody};

/// Most header lines of a reply, and most bytes of its head.
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Up to this size a request waits at the gate whole and leaves in one write; a larger one leaves but for its last byte.
const HELD_WHOLE: u64 = 16 * 1024;

/// One request. The target's host and port come from `url`.
#[derive(Clone)]
pub struct Request {
    /// Method.
    pub method: http::Method,
    /// Absolute URL, http or https.
    pub url: url::Url,
    /// Headers beside Host and Content-Length.
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    /// Body bytes; always sent with Content-Length.
    pub body: bytes::Bytes,
}

/// How one downstream is spoken to. Made once for each destination.
#[derive(Clone)]
pub struct Options {
    /// Limits of the phases: connect, tls, body, reply, answer.
    pub timeouts: Timeouts,
    /// Networks that may be dialled although the guard refuses them.
    pub allow_addresses: Vec<IpNet>,
    /// Roots and versions.
    pub tls: Arc<rustls::ClientConfig>,
    /// Who turns names into addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Largest answer that is kept, decompressed.
    pub answer_bytes: usize,
}

impl Options {
    /// What a destination declares.
    ///
    /// # Errors
    /// When its `ca_file` cannot be used.
    pub fn of(destination: &Destination) -> Result<Self, TlsSetupError> {
        Ok(Self {
            timeouts: destination.timeouts.clone(),
            allow_addresses: destination.allow_addresses.clone(),
            tls: dial::tls_config(destination.ca_file.as_deref(), &[b"http/1.1"])?,
            resolver: Arc::new(SystemResolver),
            answer_bytes: destination.limits.answer_bytes,
        })
    }
}

/// What was read of a reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body, decompressed where the encoding is known, at most `answer_bytes`.
    pub body: Vec<u8>,
    /// The body is not whole: cap, time limit, broken connection or broken compression.
    pub truncated: bool,
}

/// Why an exchange ended early.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The request cannot be put on the wire.
    #[error("request not built: {0}")]
    NotBuilt(String),
    /// No conversation began.
    #[error(transparent)]
    Dial(DialError),
    /// The gate was closed, or said no to the last bytes.
    #[error("self-stop: the gate closed before the last bytes")]
    SelfStop,
    /// The request was not taken in time.
    #[error("the request was not taken within {}", humantime::format_duration(*.0))]
    BodyTimeout(Duration),
    /// No reply in time after the last byte.
    #[error("no reply within {} after the last byte", humantime::format_duration(*.0))]
    ReplyTimeout(Duration),
    /// The connection was reset.
    #[error("connection reset: {0}")]
    Reset(String),
    /// The connection was closed before a whole reply head.
    #[error("connection closed before a reply")]
    Eof,
    /// The reply's head is no HTTP/1.1, or larger than the caps.
    #[error("unreadable reply: {0}")]
    Unparsable(String),
    /// Any other error of the connection.
    #[error("connection: {0}")]
    Io(String),
}

/// How the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// There was none.
    NeverOpened,
    /// After a whole reply.
    InOrder,
    /// Thrown away: what was not yet delivered never will be.
    Reset,
}

impl Closed {
    /// The word for a report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeverOpened => "never_opened",
            Self::InOrder => "closed",
            Self::Reset => "reset",
        }
    }
}

/// What one exchange saw.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// How far it came.
    pub stage: Stage,
    /// Bytes of head and body that were handed over.
    pub bytes_handed: u64,
    /// Bytes of head and body of the whole request.
    pub bytes_needed: u64,
    /// Every byte was handed over.
    pub complete: bool,
    /// The reply, as soon as its head could be read.
    pub reply: Option<Reply>,
    /// The address that was dialled.
    pub peer: Option<SocketAddr>,
    /// Why it ended early. A reply that was read makes it a remark.
    pub cause: Option<Cause>,
    /// Duration, milliseconds.
    pub millis: u64,
    /// How the connection ended.
    pub closed: Closed,
}

/// One exchange. Dropping the future resets the connection.
pub async fn exchange(request: &Request, options: &Options, gate: Arc<dyn Gate>) -> Exchange {
    let started = Instant::now();
    let mut seen = Exchange {
        stage: Stage::Prepared,
        bytes_handed: 0,
        bytes_needed: 0,
        complete: false,
        reply: None,
        peer: None,
        cause: None,
        millis: 0,
        closed: Closed::NeverOpened,
    };
    let run = async {
        let head = build(request).map_err(Cause::NotBuilt)?;
        seen.bytes_needed = needed(&head, request);
        let stream = open(request, options, &gate, &mut seen).await?;
        converse(stream, head, request, options, &gate, &mut seen).await
    };
    seen.cause = run.await.err();
    seen.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    seen
}

/// Asks with GET: no gate, the answer up to `options.answer_bytes`.
pub async fn get(url: url::Url, headers: Vec<(HeaderName, HeaderValue)>, options: &Options) -> Exchange {
    let request = Request { method: http::Method::GET, url, headers, body: bytes::Bytes::new() };
    exchange(&request, options, Arc::new(AlwaysOpen)).await
}

/// These belong to the connection, which is ours alone.
const OURS: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::EXPECT,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("keep-alive"),
];

fn build(request: &Request) -> Result<http::request::Parts, String> {
    let url = &request.url;
    let host = url.host_str().filter(|h| !h.is_empty()).ok_or("the URL names no host")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("scheme {} is neither http nor https", url.scheme()));
    }
    if request.method == http::Method::CONNECT {
        return Err("method CONNECT opens a tunnel".to_owned());
    }
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let uri: Uri = path.parse().map_err(|e| format!("path of the URL: {e}"))?;
    let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = request.method.clone();
    parts.uri = uri;
    parts.headers.insert(header::HOST, HeaderValue::from_str(&authority).map_err(|e| format!("host: {e}"))?);
    for (name, value) in request.headers.iter().filter(|(name, _)| !OURS.contains(name)) {
        parts.headers.append(name, value.clone());
    }
    // One request for one connection, said aloud so that the peer does not wait for another.
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if !(request.body.is_empty() && matches!(request.method, http::Method::GET | http::Method::HEAD)) {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(request.body.len()));
    }
    Ok(parts)
}

/// The exact size of the request in bytes: RFC 9112 head as hyper writes it, and body.
fn needed(head: &http::request::Parts, request: &Request) -> u64 {
    let line = head.method.as_str().len() + 1 + head.uri.to_string().len() + " HTTP/1.1\r\n".len();
    let headers: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + 2 + value.len() + 2).sum();
    (line + headers + 2 + request.body.len()) as u64
}

/// The stricter of a phase's limit and the gate's time.
fn within(limit: Duration, gate: &Arc<dyn Gate>) -> Duration {
    limit.min(gate.remaining())
}

/// A limit ran out: was it the phase's or the attempt's?
fn ran_out(gate: &Arc<dyn Gate>, cause: Cause) -> Cause {
    if gate.is_open() { cause } else { Cause::SelfStop }
}

async fn open(
    request: &Request,
    options: &Options,
    gate: &Arc<dyn Gate>,
    seen: &mut Exchange,
) -> Result<Counted<Stream>, Cause> {
    if !gate.is_open() {
        return Err(Cause::SelfStop);
    }
    let url = &request.url;
    // `host_str` keeps the brackets of an IPv6 literal; a dial wants the address.
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let target = Target {
        host,
        port: url.port_or_known_default().unwrap_or(443),
        allow: &options.allow_addresses,
        resolver: options.resolver.as_ref(),
    };
    seen.stage = Stage::Connect;
    let mut stream = dial::tcp(&target, within(options.timeouts.connect, gate))
        .await
        .map_err(|error| ran_out(gate, Cause::Dial(error)))?;
    if url.scheme() == "https" {
        seen.stage = Stage::Tls;
        stream = dial::tls(stream, host, Arc::clone(&options.tls), within(options.timeouts.tls, gate))
            .await
            .map_err(|error| ran_out(gate, Cause::Dial(error)))?;
    }
    let stream = Counted::new(stream, Arc::clone(gate));
    seen.peer = stream.peer_addr().ok();
    seen.closed = Closed::Reset;
    Ok(stream)
}

/// The connection's machine, polled by the exchange itself: nothing runs on after the exchange has ended.
struct Driver {
    connection: h1::Connection<TokioIo<Counted<Stream>>, HeldBody>,
    over: bool,
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) {
        // Its errors are given to whoever waits for the reply or the answer.
        if !self.over && self.connection.poll_without_shutdown(cx).is_ready() {
            self.over = true;
        }
    }
}

async fn converse(
    stream: Counted<Stream>,
    head: http::request::Parts,
    request: &Request,
    options: &Options,
    gate: &Arc<dyn Gate>,
    seen: &mut Exchange,
) -> Result<(), Cause> {
    let counter = stream.counter();
    let whole = seen.bytes_needed <= HELD_WHOLE || request.body.is_empty();
    let flags = Arc::new(Flags::new(counter.clone(), seen.bytes_needed, whole));
    let result = talk(stream, head, request, options, gate, &flags, seen).await;
    // The connection is gone by now, so these numbers are final.
    seen.bytes_handed = counter.handed();
    seen.complete = flags.complete();
    let reached = match &seen.reply {
        Some(_) => Stage::Replied,
        None if seen.complete => Stage::Handed,
        None if flags.at_gate() => Stage::AtGate,
        None => Stage::Body,
    };
    seen.stage = reached;
    if seen.reply.is_some() && seen.complete && seen.bytes_handed != seen.bytes_needed {
        tracing::error!(
            handed = seen.bytes_handed,
            needed = seen.bytes_needed,
            "the size of a request was computed wrongly; completeness was taken from the flush"
        );
    }
    result
}

async fn talk(
    stream: Counted<Stream>,
    head: http::request::Parts,
    request: &Request,
    options: &Options,
    gate: &Arc<dyn Gate>,
    flags: &Arc<Flags>,
    seen: &mut Exchange,
) -> Result<(), Cause> {
    let counter = stream.counter();
    let (mut sender, connection) = h1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake::<_, HeldBody>(TokioIo::new(stream))
        .await
        .map_err(|error| Cause::Io(error.to_string()))?;
    let mut driver = Driver { connection, over: false };
    let body_end = Instant::now() + within(options.timeouts.body, gate);
    let left = || body_end.saturating_duration_since(Instant::now());
    let body_timeout = || ran_out(gate, Cause::BodyTimeout(options.timeouts.body));

    if flags.whole() {
        flags.arrive();
        let yes = timeout(left(), gate.last_bytes()).await.map_err(|_elapsed| body_timeout())?;
        if !yes || !gate.is_open() {
            return Err(Cause::SelfStop);
        }
        flags.release();
    }
    let body = HeldBody::new(request.body.clone(), Arc::clone(flags), Arc::clone(gate));
    let mut reply = pin!(sender.send_request(http::Request::from_parts(head, body)));
    let fault = |error: &hyper::Error| cause_of(error, &counter, flags);

    let early = timeout(left(), poll_fn(|cx| step(&mut driver, reply.as_mut(), flags, cx)))
        .await
        .map_err(|_elapsed| body_timeout())?;
    let response = match early {
        Some(response) => response,
        None => timeout(
            options.timeouts.reply,
            poll_fn(|cx| {
                driver.poll(cx);
                reply.as_mut().poll(cx)
            }),
        )
        .await
        .map_err(|_elapsed| Cause::ReplyTimeout(options.timeouts.reply))?,
    }
    .map_err(|error| fault(&error))?;

    let accepts = response.status().is_success();
    if !flags.complete() {
        if accepts {
            // The peer said yes before it had everything: finish, so that it is true. Running out shows as incomplete.
            let finish = poll_fn(|cx| {
                driver.poll(cx);
                if flags.complete() || driver.over { Poll::Ready(()) } else { Poll::Pending }
            });
            let _incomplete = timeout(left(), finish).await;
        }
        flags.halt();
    }
    read(response, &mut driver, options, seen).await;
    let whole_reply = seen.reply.as_ref().is_some_and(|reply| !reply.truncated);
    if flags.complete() && whole_reply {
        counter.close_in_order();
        seen.closed = Closed::InOrder;
    }
    Ok(())
}

type Replied = Result<http::Response<Incoming>, hyper::Error>;

/// Until the request is complete (`None`) or a reply comes before that.
fn step(
    driver: &mut Driver,
    reply: Pin<&mut impl Future<Output = Replied>>,
    flags: &Flags,
    cx: &mut Context<'_>,
) -> Poll<Option<Replied>> {
    driver.poll(cx);
    match reply.poll(cx) {
        Poll::Ready(reply) => Poll::Ready(Some(reply)),
        Poll::Pending if flags.complete() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    }
}

/// The answer's body is diagnostics: its own limits of size and time, and nothing in it changes that the head was read.
async fn read(response: http::Response<Incoming>, driver: &mut Driver, options: &Options, seen: &mut Exchange) {
    let (head, mut body) = response.into_parts();
    let mut raw = answer::Raw::new(options.answer_bytes);
    let ended = timeout(
        options.timeouts.answer,
        poll_fn(|cx| {
            driver.poll(cx);
            raw.poll(&mut body, cx)
        }),
    )
    .await
    .unwrap_or(false);
    let (body, truncated) = answer::decode(&head.headers, raw.bytes, ended, options.answer_bytes);
    seen.reply = Some(Reply { status: head.status.as_u16(), headers: head.headers, body, truncated });
}

fn cause_of(error: &hyper::Error, counter: &Counter, flags: &Flags) -> Cause {
    if flags.refused() || counter.stopped() {
        return Cause::SelfStop;
    }
    if error.is_parse() || error.is_parse_too_large() {
        return Cause::Unparsable(describe(error));
    }
    if error.is_incomplete_message() {
        return Cause::Eof;
    }
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind as Kind;
            let kind = io.kind();
            return if matches!(kind, Kind::ConnectionReset | Kind::BrokenPipe | Kind::ConnectionAborted) {
                Cause::Reset(io.to_string())
            } else if kind == Kind::UnexpectedEof {
                Cause::Eof
            } else {
                Cause::Io(io.to_string())
            };
        }
        source = inner.source();
    }
    Cause::Io(describe(error))
}

/// hyper's own words and those of what lies beneath.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
