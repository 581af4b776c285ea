//! A stream of which only so much is read, and nothing that the parser must not see: a server that never ends must not fill
//! the memory, and none may end the reader.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::guard::{Guard, Refused};

/// The words of the error.
pub const TOO_MUCH: &str = "the answer does not end";

/// Reads only so much, and only what the guard lets by.
#[derive(Debug)]
pub struct Capped<S> {
    inner: S,
    left: u64,
    guard: Guard,
}

impl<S> Capped<S> {
    /// Reads at most `left` bytes of `inner`.
    pub fn new(inner: S, left: u64) -> Self {
        Self { inner, left, guard: Guard::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Capped<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let read = (buf.filled().len() - before) as u64;
        match this.left.checked_sub(read) {
            Some(left) => this.left = left,
            None => return Poll::Ready(Err(io::Error::other(TOO_MUCH))),
        }
        // What was said is not repeated.
        let said = buf.filled().get(before..).unwrap_or_default();
        Poll::Ready(this.guard.look(said, this.left).map_err(|Refused| io::Error::other("not readable")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Capped<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
