//! The conversation itself: body, gate, reply, answer, and how the connection ends.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::{body::Incoming, client::conn::http1 as h1};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, time::timeout};

use super::{
    Cause, Closed, Exchange, Options, Reply, Request, answer,
    held::{Flags, HeldBody},
    keep::{self, Lent, Place},
    ran_out, within,
};
use crate::{
    channels::wire::counted::{Counted, Counter, Stream},
    domain::{gate::Gate, outcome::Stage},
};

/// Most header lines of a reply, and most bytes of its head.
const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Up to this size a request waits at the gate whole and leaves in one write; a larger one leaves but for its last byte.
const HELD_WHOLE: u64 = 16 * 1024;

/// For the goodbye of TLS after everything that matters has been read.
const GOODBYE: Duration = Duration::from_millis(100);

type Replied = Result<http::Response<Incoming>, hyper::Error>;

/// What one exchange was asked to do.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) request: &'a Request,
    pub(super) options: &'a Options,
    pub(super) gate: &'a Arc<dyn Gate>,
    pub(super) place: Place<'a>,
}

/// Sends the request and reads what comes back; fills `seen`.
pub(super) async fn converse(
    lent: Lent,
    head: http::request::Parts,
    call: &Call<'_>,
    seen: &mut Exchange,
) -> Result<(), Cause> {
    let (request, born) = (call.request, lent.born);
    // A gate and a counter of this exchange alone, whatever the connection has carried before.
    let gate = Arc::clone(call.gate);
    let stream = if lent.used { Counted::reused(lent.stream, gate) } else { Counted::new(lent.stream, gate) };
    let counter = stream.counter();
    let whole = seen.bytes_needed <= HELD_WHOLE || request.body.is_empty();
    let flags = Arc::new(Flags::new(counter.clone(), seen.bytes_needed, whole));
    let body = HeldBody::new(request.body.clone(), Arc::clone(&flags), Arc::clone(call.gate));
    let (result, closed) = match Talk::begin(stream, &flags, call, born).await {
        Ok((sender, talk)) => talk.run(sender, http::Request::from_parts(head, body), seen).await,
        Err(cause) => (Err(cause), Closed::Reset),
    };
    // The exchange has let go of the connection by now, so these numbers are final.
    seen.closed = closed;
    seen.bytes_handed = counter.handed();
    seen.complete = flags.complete();
    seen.stage = match &seen.reply {
        Some(_) => Stage::Replied,
        None if seen.complete => Stage::Handed,
        None if flags.at_gate() => Stage::AtGate,
        None => Stage::Body,
    };
    if seen.reply.is_some() && seen.complete && seen.bytes_handed != seen.bytes_needed {
        tracing::error!(
            handed = seen.bytes_handed,
            needed = seen.bytes_needed,
            "the size of a request was computed wrongly; completeness was taken from the flush"
        );
    }
    result
}

/// One conversation. The connection's machine is polled from here: nothing runs on after the exchange has ended.
struct Talk<'a> {
    connection: h1::Connection<TokioIo<Counted<Stream>>, HeldBody>,
    over: bool,
    counter: Counter,
    flags: &'a Flags,
    call: Call<'a>,
    born: tokio::time::Instant,
    body_end: Instant,
}

impl<'a> Talk<'a> {
    async fn begin(
        stream: Counted<Stream>,
        flags: &'a Flags,
        call: &Call<'a>,
        born: tokio::time::Instant,
    ) -> Result<(h1::SendRequest<HeldBody>, Self), Cause> {
        let counter = stream.counter();
        let (sender, connection) = h1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Cause::Io(error.to_string()))?;
        let body_end = Instant::now() + within(call.options.timeouts.body, call.gate);
        Ok((sender, Self { connection, over: false, counter, flags, call: *call, born, body_end }))
    }

    async fn run(
        mut self,
        mut sender: h1::SendRequest<HeldBody>,
        request: http::Request<HeldBody>,
        seen: &mut Exchange,
    ) -> (Result<(), Cause>, Closed) {
        let response = match self.until_replied(&mut sender, request).await {
            Ok(response) => response,
            Err(cause) => return (Err(cause), Closed::Reset),
        };
        let early = !self.flags.complete();
        self.finish(response.status().is_success()).await;
        let (reply, allowed) = self.read(response).await;
        let in_order = self.flags.complete() && !reply.truncated;
        seen.reply = Some(reply);
        let closed = match allowed {
            _ if !in_order => Closed::Reset,
            Some(allowed) if !early => self.keep(allowed).await,
            Some(_) | None => self.goodbye().await,
        };
        drop(sender);
        (Ok(()), closed)
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        // Its errors are given to whoever waits for the reply or the answer.
        if !self.over && self.connection.poll_without_shutdown(cx).is_ready() {
            self.over = true;
        }
    }

    fn left(&self) -> Duration {
        self.body_end.saturating_duration_since(Instant::now())
    }

    fn body_timeout(&self) -> Cause {
        ran_out(self.call.gate, Cause::BodyTimeout(self.call.options.timeouts.body))
    }

    /// Hands over the request, through the gate, and waits for the head of a reply.
    async fn until_replied(
        &mut self,
        sender: &mut h1::SendRequest<HeldBody>,
        request: http::Request<HeldBody>,
    ) -> Result<http::Response<Incoming>, Cause> {
        if self.flags.whole() {
            self.flags.arrive();
            let yes =
                timeout(self.left(), self.call.gate.last_bytes()).await.map_err(|_elapsed| self.body_timeout())?;
            if !yes || !self.call.gate.is_open() {
                return Err(Cause::SelfStop);
            }
            self.flags.release();
        }
        let mut reply = pin!(sender.send_request(request));
        let early = match timeout(self.left(), poll_fn(|cx| self.step(reply.as_mut(), cx))).await {
            Ok(early) => early,
            Err(_elapsed) => return Err(self.body_timeout()),
        };
        let limit = self.call.options.timeouts.reply;
        let replied = match early {
            Some(replied) => replied,
            None => timeout(
                limit,
                poll_fn(|cx| {
                    self.drive(cx);
                    reply.as_mut().poll(cx)
                }),
            )
            .await
            .map_err(|_elapsed| Cause::ReplyTimeout(limit))?,
        };
        replied.map_err(|error| cause_of(&error, &self.counter, self.flags))
    }

    /// Until the request is complete (`None`) or a reply comes before that.
    fn step(&mut self, reply: Pin<&mut impl Future<Output = Replied>>, cx: &mut Context<'_>) -> Poll<Option<Replied>> {
        self.drive(cx);
        match reply.poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Some(reply)),
            Poll::Pending if self.flags.complete() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// After an early reply: a yes is made true by sending the rest, anything else ends the writing. Running out shows as
    /// incomplete.
    async fn finish(&mut self, accepted: bool) {
        if self.flags.complete() {
            return;
        }
        if accepted {
            let left = self.left();
            let rest = poll_fn(|cx| {
                self.drive(cx);
                if self.flags.complete() || self.over { Poll::Ready(()) } else { Poll::Pending }
            });
            let _incomplete = timeout(left, rest).await;
        }
        self.flags.halt();
    }

    /// The answer's body is diagnostics: its own limits of size and time, and nothing in it changes that the head was read.
    /// Beside it: how long the server allows the connection to be kept.
    async fn read(&mut self, response: http::Response<Incoming>) -> (Reply, Option<Duration>) {
        let (head, mut body) = response.into_parts();
        let allowed = self.call.options.keep.as_ref().and_then(|_keep| keep::allowed(&head));
        let cap = self.call.options.answer_bytes;
        let mut raw = answer::Raw::new(cap);
        let ended = timeout(
            self.call.options.timeouts.answer,
            poll_fn(|cx| {
                self.drive(cx);
                raw.poll(&mut body, cx)
            }),
        )
        .await
        .unwrap_or(false);
        let (body, truncated) = answer::decode(&head.headers, raw.bytes, ended, cap);
        (Reply { status: head.status.as_u16(), headers: head.headers, body, truncated }, allowed)
    }

    /// Keeps the bare stream for another request, where nothing odd was seen; otherwise an orderly end.
    async fn keep(mut self, allowed: Duration) -> Closed {
        // Once more, without waiting: an end of the connection, or bytes that nobody asked for, show here.
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })
        .await;
        let Some(keep) = self.call.options.keep.as_ref().filter(|_keep| !self.over && self.counter.all_flushed())
        else {
            return self.goodbye().await;
        };
        let parts = self.connection.into_parts();
        self.counter.close_in_order();
        let silent = parts.read_buf.is_empty();
        let Some(stream) = parts.io.into_inner().take() else { return Closed::InOrder };
        let lent = Lent { stream, born: self.born, used: true };
        if silent && keep.give(lent, self.call.place, allowed) { Closed::Kept } else { Closed::InOrder }
    }

    /// Everything that matters was read: an orderly end, through TLS too.
    async fn goodbye(self) -> Closed {
        self.counter.close_in_order();
        let mut stream = self.connection.into_parts().io.into_inner();
        // A peer that has gone already does not mind.
        let _gone = timeout(GOODBYE, stream.shutdown()).await;
        Closed::InOrder
    }
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
