//! The request body that yields its last byte only after the gate has said yes.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::{
    channels::wire::counted::Counter,
    domain::gate::{BoxFuture, Gate},
};

/// Piece in which a large body is given to the connection.
const PIECE: usize = 64 * 1024;

/// What the exchange and its body tell each other.
pub(super) struct Flags {
    counter: Counter,
    needed: u64,
    whole: bool,
    at_gate: AtomicBool,
    released: AtomicBool,
    refused: AtomicBool,
    halted: AtomicBool,
}

impl Flags {
    pub(super) fn new(counter: Counter, needed: u64, whole: bool) -> Self {
        let no = || AtomicBool::new(false);
        Self { counter, needed, whole, at_gate: no(), released: no(), refused: no(), halted: no() }
    }

    /// The whole request waits at the gate, not only its last byte.
    pub(super) fn whole(&self) -> bool {
        self.whole
    }

    /// Everything but the held-back bytes is handed over.
    pub(super) fn arrive(&self) {
        self.at_gate.store(true, Ordering::Release);
    }

    pub(super) fn at_gate(&self) -> bool {
        self.at_gate.load(Ordering::Acquire)
    }

    /// The gate said yes.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// The gate said no to the last byte.
    pub(super) fn refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// No further byte of the body is given out.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Release);
    }

    /// Every byte was handed over. Never false because a size was computed wrongly: a request held whole is in hyper's
    /// buffer at once, and hyper flushes the stream only when that buffer is empty.
    pub(super) fn complete(&self) -> bool {
        let handed = self.counter.handed();
        self.released.load(Ordering::Acquire)
            && (handed >= self.needed || (self.whole && handed > 0 && self.counter.all_flushed()))
    }
}

/// The body. `rest` goes out freely, `last` waits.
pub(super) struct HeldBody {
    rest: Bytes,
    last: Bytes,
    flags: Arc<Flags>,
    question: Option<BoxFuture<'static, bool>>,
}

impl HeldBody {
    pub(super) fn new(body: Bytes, flags: Arc<Flags>, gate: Arc<dyn Gate>) -> Self {
        let mut rest = body;
        let keep = if flags.whole { rest.len() } else { rest.len().saturating_sub(1) };
        let last = rest.split_off(keep);
        let question: BoxFuture<'static, bool> =
            Box::pin(async move { gate.is_open() && gate.last_bytes().await && gate.is_open() });
        Self { rest, last, flags, question: Some(question) }
    }

    /// Ready when the last byte may go.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Register first, then look: a byte counted in between wakes us.
        self.flags.counter.watch(cx.waker());
        if self.flags.counter.handed() + self.last.len() as u64 != self.flags.needed {
            return Poll::Pending;
        }
        self.flags.arrive();
        let Some(question) = &mut self.question else {
            return Poll::Ready(false);
        };
        let yes = ready!(question.as_mut().poll(cx));
        self.question = None;
        Poll::Ready(yes)
    }
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = self.get_mut();
        if this.flags.halted.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        if !this.rest.is_empty() {
            let piece = this.rest.split_to(this.rest.len().min(PIECE));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if this.last.is_empty() {
            return Poll::Ready(None);
        }
        if !ready!(this.poll_gate(cx)) {
            this.flags.refused.store(true, Ordering::Release);
            return Poll::Ready(Some(Err(std::io::Error::other("self-stop: the gate said no to the last byte"))));
        }
        this.flags.release();
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.last)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.last.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.rest.len() + self.last.len()) as u64)
    }
}
