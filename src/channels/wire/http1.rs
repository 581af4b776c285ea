//! One HTTP/1.1 exchange, on a fresh connection or on one that was kept.
//!
//! Used by the webhook and SMS channels and by every HTTP look-up. What must hold: one request for one call, on a connection
//! that nothing else uses meanwhile; no redirect is followed, nothing is sent twice; the length is always declared; the last
//! byte waits for the gate, and after a refusal or a limit the connection is reset. Gate, counter and HTTP state belong to the
//! exchange; only the bare stream outlives it (see `keep`). A kept connection that turns out dead before a byte of the request
//! was handed over is replaced by a fresh one, once. What the caller learns is a value: [`Exchange`] says how far it came.

mod answer;
mod head;
mod held;
mod keep;
mod talk;

pub use keep::Keep;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use tokio::time::Instant as TokioInstant;

use keep::{Lent, Place};

use super::{
    AlwaysOpen,
    counted::Socket,
    dial::{self, DialError, Resolve, SystemResolver, Target, TlsSetupError},
};
use crate::{
    config::destination::{Destination, Timeouts},
    domain::{gate::Gate, outcome::Stage},
};

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
    /// Connections that wait for the next request; `None`: each request gets its own. Not for questions: answers that must
    /// agree are better asked on connections of their own.
    pub keep: Option<Arc<Keep>>,
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
            keep: None,
        })
    }

    /// The same, keeping idle connections as the destination declares.
    pub fn keeping(self, destination: &Destination) -> Self {
        Self { keep: Keep::of(destination), ..self }
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
    /// Not at all: after a whole reply it waits for the next request.
    Kept,
    /// Thrown away: what was not yet delivered never will be.
    Reset,
}

impl Closed {
    /// The word for a report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeverOpened => "never_opened",
            Self::InOrder => "closed",
            Self::Kept => "kept",
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
    seen.cause = converse(request, options, &gate, &mut seen).await.err();
    seen.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    seen
}

/// Asks with GET: no gate, the answer up to `options.answer_bytes`.
pub async fn get(url: url::Url, headers: Vec<(HeaderName, HeaderValue)>, options: &Options) -> Exchange {
    let request = Request { method: http::Method::GET, url, headers, body: bytes::Bytes::new() };
    exchange(&request, options, Arc::new(AlwaysOpen)).await
}

/// The stricter of a phase's limit and the gate's time.
fn within(limit: Duration, gate: &Arc<dyn Gate>) -> Duration {
    limit.min(gate.remaining())
}

/// A limit ran out: was it the phase's or the attempt's?
fn ran_out(gate: &Arc<dyn Gate>, cause: Cause) -> Cause {
    if gate.is_open() { cause } else { Cause::SelfStop }
}

/// Where the request goes.
fn place<'a>(request: &'a Request, options: &'a Options) -> Place<'a> {
    let url = &request.url;
    Place {
        // `host_str` keeps the brackets of an IPv6 literal; a dial wants the address.
        host: url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']'),
        port: url.port_or_known_default().unwrap_or(443),
        tls: (url.scheme() == "https").then_some(&options.tls),
    }
}

async fn converse(
    request: &Request,
    options: &Options,
    gate: &Arc<dyn Gate>,
    seen: &mut Exchange,
) -> Result<(), Cause> {
    let head = head::build(request, options.keep.is_some()).map_err(Cause::NotBuilt)?;
    seen.bytes_needed = head::needed(&head, request);
    let call = talk::Call { request, options, gate, place: place(request, options) };
    if !gate.is_open() {
        return Err(Cause::SelfStop);
    }
    if let Some(lent) = options.keep.as_ref().and_then(|keep| keep.take(call.place, &options.allow_addresses)) {
        noted(&lent, seen);
        match talk::converse(lent, head.clone(), &call, seen).await {
            // Not one byte of the request has left, and that connection is gone.
            Err(cause) if seen.bytes_handed == 0 && seen.reply.is_none() && is_of_the_connection(&cause) => {}
            ended => return ended,
        }
    }
    let lent = open(&call, seen).await?;
    noted(&lent, seen);
    talk::converse(lent, head, &call, seen).await
}

/// Whether it speaks of a broken connection, and not of our own limits.
fn is_of_the_connection(cause: &Cause) -> bool {
    match cause {
        Cause::Reset(_) | Cause::Eof | Cause::Unparsable(_) | Cause::Io(_) => true,
        Cause::NotBuilt(_) | Cause::Dial(_) | Cause::SelfStop | Cause::BodyTimeout(_) | Cause::ReplyTimeout(_) => false,
    }
}

fn noted(lent: &Lent, seen: &mut Exchange) {
    seen.peer = lent.stream.peer().ok();
    seen.closed = Closed::Reset;
}

async fn open(call: &talk::Call<'_>, seen: &mut Exchange) -> Result<Lent, Cause> {
    let (options, gate, place) = (call.options, call.gate, call.place);
    (seen.peer, seen.closed) = (None, Closed::NeverOpened);
    if !gate.is_open() {
        return Err(Cause::SelfStop);
    }
    let target = Target {
        host: place.host,
        port: place.port,
        allow: &options.allow_addresses,
        resolver: options.resolver.as_ref(),
    };
    seen.stage = Stage::Connect;
    let born = TokioInstant::now();
    let mut stream = dial::tcp(&target, within(options.timeouts.connect, gate))
        .await
        .map_err(|error| ran_out(gate, Cause::Dial(error)))?;
    if let Some(tls) = place.tls {
        seen.stage = Stage::Tls;
        stream = dial::tls(stream, place.host, Arc::clone(tls), within(options.timeouts.tls, gate))
            .await
            .map_err(|error| ran_out(gate, Cause::Dial(error)))?;
    }
    Ok(Lent { stream, born, used: false })
}
