//! A stream of which only so much is read: a server that never ends must not fill the memory.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The words of the error.
pub const TOO_MUCH: &str = "the answer does not end";

/// Reads only so much.
#[derive(Debug)]
pub struct Capped<S> {
    inner: S,
    left: u64,
}

impl<S> Capped<S> {
    /// Reads at most `left` bytes of `inner`.
    pub fn new(inner: S, left: u64) -> Self {
        Self { inner, left }
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
        Poll::Ready(Ok(()))
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
