//! Lines and blocks over plain TCP or TLS, for the mail servers.

use std::io;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::{door, tls::Certificate};

/// Longest line; RFC 5321 4.5.3.1.6 asks for 1000 octets, IMAP clients send longer ones.
const LINE: usize = 64 * 1024;
/// Largest literal or message.
const BLOCK: usize = 32 * 1024 * 1024;

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// One conversation's bytes.
pub(super) struct Wire {
    stream: Option<Stream>,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream: Some(Stream::Plain(stream)), buffer: Vec::new() }
    }

    /// The rest of the conversation is encrypted. What was sent ahead in plain text is forgotten (RFC 3207 section 4.2).
    pub(super) async fn encrypt(&mut self, certificate: &Certificate) -> io::Result<()> {
        self.buffer.clear();
        let Some(Stream::Plain(plain)) = self.stream.take() else { return Err(closed()) };
        let encrypted = certificate.acceptor().accept(plain).await?;
        self.stream = Some(Stream::Tls(Box::new(encrypted)));
        Ok(())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self.stream, Some(Stream::Tls(_)))
    }

    /// A line without its CRLF; `None` when the client has closed.
    pub(super) async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut looked = 0;
        loop {
            if let Some(at) = self.buffer.iter().skip(looked).position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=looked + at).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            looked = self.buffer.len();
            if looked > LINE {
                return Err(io::Error::other("line too long"));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Exactly that many bytes.
    pub(super) async fn block(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > BLOCK {
            return Err(io::Error::other("block too long"));
        }
        while self.buffer.len() < length {
            if !self.fill().await? {
                return Err(closed());
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    async fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let read = match &mut self.stream {
            Some(Stream::Plain(plain)) => plain.read(&mut chunk).await?,
            Some(Stream::Tls(tls)) => tls.read(&mut chunk).await?,
            None => return Err(closed()),
        };
        self.buffer.extend(chunk.iter().take(read));
        Ok(read > 0)
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Some(Stream::Plain(plain)) => plain.write_all(bytes).await,
            Some(Stream::Tls(tls)) => {
                tls.write_all(bytes).await?;
                tls.flush().await
            }
            None => Err(closed()),
        }
    }

    /// Ends with a reset.
    pub(super) fn reset(&mut self) {
        match self.stream.take() {
            Some(Stream::Plain(plain)) => door::reset(plain),
            Some(Stream::Tls(tls)) => door::reset(tls.into_inner().0),
            None => {}
        }
    }

    /// Keeps the connection open and silent until the client gives up.
    pub(super) async fn stay_silent(&mut self) -> io::Result<()> {
        while self.fill().await? {
            self.buffer.clear();
        }
        Ok(())
    }
}

fn closed() -> io::Error {
    io::Error::from(io::ErrorKind::UnexpectedEof)
}
