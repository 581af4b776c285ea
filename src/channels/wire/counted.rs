//! A stream that counts the bytes it hands on and refuses to write once the gate is closed.
//!
//! Used by every channel, above TLS, so that the numbers are bytes of the request and not of records. What must hold: a byte
//! that was not counted has not left; closing without [`Counter::close_in_order`] resets the connection, so that bytes that
//! still wait in the kernel are thrown away, also when the process is killed.

use std::{
    fmt, io,
    mem::MaybeUninit,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::domain::gate::Gate;

/// First words of the error that a closed gate gives to a writer.
pub const SELF_STOP: &str = "self-stop";

/// A connected byte stream whose end can be chosen.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync + fmt::Debug {
    /// With `true` a close throws away what the peer has not yet been sent, and resets; with `false` it is orderly.
    ///
    /// # Errors
    /// When the socket refuses the option.
    fn reset_on_close(&self, reset: bool) -> io::Result<()>;

    /// The address at the other end.
    ///
    /// # Errors
    /// When the socket is not connected any more.
    fn peer(&self) -> io::Result<SocketAddr>;

    /// Nothing waits to be read and the peer has not closed: asked of the kernel itself, not of what a runtime remembers.
    fn is_silent(&mut self) -> bool;
}

impl Socket for TcpStream {
    fn reset_on_close(&self, reset: bool) -> io::Result<()> {
        socket2::SockRef::from(self).set_linger(reset.then_some(Duration::ZERO))
    }

    fn peer(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }

    fn is_silent(&mut self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let waits = socket2::SockRef::from(&*self).peek(&mut byte);
        waits.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// A dialled connection. Made by [`super::dial`], with TCP_NODELAY set and reset on close.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Through TLS.
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Closes with a reset: what still waits in the kernel is thrown away.
    pub fn abort(self) {
        // A socket that refuses the option is already dead; closing it is all that is left.
        let _refused = self.reset_on_close(true);
    }
}

impl Socket for Stream {
    fn reset_on_close(&self, reset: bool) -> io::Result<()> {
        self.tcp().reset_on_close(reset)
    }

    fn peer(&self) -> io::Result<SocketAddr> {
        self.tcp().peer_addr()
    }

    fn is_silent(&mut self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_silent(),
            Self::Tls(tls) => {
                let mut byte = [0];
                let mut context = Context::from_waker(Waker::noop());
                tls.get_mut().0.is_silent()
                    && Pin::new(tls.as_mut()).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
        }
    }
}

/// What a [`Counted`] stream knows, readable while a library owns the stream. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    handed: AtomicU64,
    flushed: AtomicU64,
    mark: AtomicU64,
    stopped: AtomicBool,
    orderly: AtomicBool,
    watcher: AtomicWaker,
}

impl Counter {
    /// Bytes handed to the stream below (kernel, or TLS above it) so far.
    pub fn handed(&self) -> u64 {
        self.0.handed.load(Ordering::Acquire)
    }

    /// Counts from here: [`Self::since_mark`] is zero now.
    pub fn mark(&self) {
        self.0.mark.store(self.handed(), Ordering::Release);
    }

    /// Bytes handed since [`Self::mark`], or in all.
    pub fn since_mark(&self) -> u64 {
        self.handed().saturating_sub(self.0.mark.load(Ordering::Acquire))
    }

    /// Everything that was handed over so far has been flushed by the layer above and by the stream below.
    pub fn all_flushed(&self) -> bool {
        self.0.flushed.load(Ordering::Acquire) == self.handed()
    }

    /// A write was refused because the gate was closed.
    pub fn stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// The conversation is over and everything that matters was read: close without a reset.
    pub fn close_in_order(&self) {
        self.0.orderly.store(true, Ordering::Release);
    }

    /// Wakes `waker` when more bytes have been handed over. One watcher at a time; register first, then read.
    pub fn watch(&self, waker: &Waker) {
        self.0.watcher.register(waker);
    }

    fn add(&self, n: usize) {
        self.0.handed.fetch_add(n as u64, Ordering::AcqRel);
        self.0.watcher.wake();
    }
}

/// The stream of one attempt.
pub struct Counted<S: Socket> {
    inner: Option<S>,
    gate: Arc<dyn Gate>,
    counter: Counter,
    unflushed: bool,
    used_before: bool,
}

impl<S: Socket> Counted<S> {
    /// Puts `gate` before every write to `inner`.
    pub fn new(inner: S, gate: Arc<dyn Gate>) -> Self {
        Self::with_counter(inner, gate, Counter::default())
    }

    /// The same, counting on with the counter of an earlier stage of the same conversation (STARTTLS).
    pub fn with_counter(inner: S, gate: Arc<dyn Gate>, counter: Counter) -> Self {
        Self { inner: Some(inner), gate, counter, unflushed: false, used_before: false }
    }

    /// The same on a stream that has carried an exchange before: its first write is refused if the peer has closed or
    /// spoken meanwhile, so that not one byte goes into a connection that is known to be dead.
    pub fn reused(inner: S, gate: Arc<dyn Gate>) -> Self {
        let mut counted = Self::new(inner, gate);
        counted.used_before = true;
        counted
    }

    /// The handle to keep when a library takes the stream.
    pub fn counter(&self) -> Counter {
        self.counter.clone()
    }

    /// Gives the stream back, for an upgrade to TLS. `None` only after it was taken before.
    pub fn take(mut self) -> Option<S> {
        self.inner.take()
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// When it is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.as_ref().ok_or_else(taken)?.peer()
    }

    fn below(&mut self) -> io::Result<Pin<&mut S>> {
        self.inner.as_mut().map(Pin::new).ok_or_else(taken)
    }

    fn check(&self) -> io::Result<()> {
        if self.gate.is_open() {
            return Ok(());
        }
        self.counter.0.stopped.store(true, Ordering::Release);
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{SELF_STOP}: the time of this attempt is over")))
    }
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the stream was given away")
}

impl<S: Socket> Drop for Counted<S> {
    fn drop(&mut self) {
        if let Some(inner) = &self.inner {
            // A dead socket refuses the option; there is nothing left to end then.
            let _refused = inner.reset_on_close(!self.counter.0.orderly.load(Ordering::Acquire));
        }
    }
}

impl<S: Socket> fmt::Debug for Counted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("inner", &self.inner).field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl<S: Socket> AsyncRead for Counted<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // Reading stays possible after the gate has closed: a late reply is evidence.
        self.get_mut().below()?.poll_read(cx, buf)
    }
}

impl<S: Socket> AsyncWrite for Counted<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check()?;
        if std::mem::take(&mut this.used_before) && !this.below()?.is_silent() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the kept connection is over")));
        }
        let n = ready!(this.below()?.poll_write(cx, buf))?;
        if n > 0 {
            this.unflushed = true;
            this.counter.add(n);
            this.gate.wrote(n);
        }
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unflushed {
            // TLS may still hold records of what was handed to it.
            this.check()?;
        }
        ready!(this.below()?.poll_flush(cx))?;
        this.unflushed = false;
        this.counter.0.flushed.store(this.counter.handed(), Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unflushed {
            this.check()?;
        }
        this.below()?.poll_shutdown(cx)
    }
}
