//! Lines to a relay and replies from it, each within a limit. The stream below counts, obeys the gate and resets on drop.
//!
//! lettre's connection is not used: it drops the lines of EHLO (so DSN and SIZE cannot be seen), expects a second greeting
//! after STARTTLS, has no limit for a reply, refuses replies without text (RFC 5321 section 4.2 allows them), and writes
//! the final dot without a place for the gate. Its commands and their encoding are used.

use std::{fmt::Display, io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    channels::wire::counted::{Counted, Counter, Stream},
    domain::gate::Gate,
};

/// Longest line of a reply; RFC 5321 section 4.5.3.1.5 allows 512.
const LONGEST_LINE: usize = 4096;
/// Longest reply.
const LONGEST_REPLY: usize = 64 * 1024;
/// Parting takes no longer.
const PARTING: Duration = Duration::from_secs(1);

/// A reply: code and its lines without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Three digits, the first from 2 to 5.
    pub code: u16,
    /// At least one, perhaps empty.
    pub lines: Vec<String>,
}

impl Reply {
    /// The text as one line.
    pub fn text(&self) -> String {
        self.lines.join(" ")
    }
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReply {
    /// Nothing within the limit.
    Silence(Duration),
    /// The connection ended or broke.
    Lost(String),
    /// Something came that is no reply.
    Unreadable(String),
    /// The gate refused the command.
    Stopped,
}

impl Display for NoReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silence(limit) => write!(f, "no reply within {}", humantime::format_duration(*limit)),
            Self::Lost(why) => write!(f, "connection lost: {why}"),
            Self::Unreadable(why) => write!(f, "unreadable reply: {why}"),
            Self::Stopped => write!(f, "the time of this attempt is over"),
        }
    }
}

/// One conversation.
pub struct Talk {
    stream: BufReader<Counted<Stream>>,
    counter: Counter,
    gate: Arc<dyn Gate>,
}

impl Talk {
    /// Takes over a dialled stream, counting on where `counter` stands.
    pub fn new(stream: Stream, gate: Arc<dyn Gate>, counter: Counter) -> Self {
        let counted = Counted::with_counter(stream, Arc::clone(&gate), counter.clone());
        Self { stream: BufReader::new(counted), counter, gate }
    }

    /// Gives the stream back for TLS. What the relay said in clear text beyond its last reply is thrown away here, since
    /// anybody on the way may have put it there (RFC 3207 section 6).
    pub fn into_stream(self) -> Option<Stream> {
        self.stream.into_inner().take()
    }

    /// Says one line and waits for the reply.
    pub async fn ask(&mut self, command: impl Display, limit: Duration, end: Instant) -> Result<Reply, NoReply> {
        // Somebody who answers before the question would have every later answer taken for another.
        if !self.stream.buffer().is_empty() {
            return Err(NoReply::Unreadable("the relay spoke out of turn".to_owned()));
        }
        let until = end.min(Instant::now() + limit);
        match timeout_at(until, self.hand_over(command.to_string().as_bytes())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(self.broken(&error)),
            Err(_elapsed) => return Err(NoReply::Silence(limit)),
        }
        self.hear(limit, end).await
    }

    /// Waits for a reply.
    pub async fn hear(&mut self, limit: Duration, end: Instant) -> Result<Reply, NoReply> {
        let until = end.min(Instant::now() + limit);
        timeout_at(until, self.read_reply()).await.unwrap_or(Err(NoReply::Silence(limit)))
    }

    /// Writes and flushes.
    ///
    /// # Errors
    /// When the connection breaks or the gate is closed.
    pub async fn hand_over(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Nothing came although nothing was asked, and the connection is not known to be gone.
    pub async fn is_quiet(&mut self) -> bool {
        timeout(Duration::ZERO, self.stream.fill_buf()).await.is_err()
    }

    /// What came although nothing was asked: `None` when nothing did.
    pub async fn interruption(&mut self, patience: Duration) -> Option<Result<Reply, NoReply>> {
        match timeout(Duration::ZERO, self.stream.fill_buf()).await {
            Err(_nothing) => None,
            Ok(_something) => {
                Some(timeout(patience, self.read_reply()).await.unwrap_or(Err(NoReply::Silence(patience))))
            }
        }
    }

    /// A reply that may have come before the connection broke.
    pub async fn last_words(&mut self) -> Option<Reply> {
        timeout(PARTING, self.read_reply()).await.ok()?.ok()
    }

    /// Says QUIT without waiting for the answer and closes in order. Only after a definite reply.
    pub async fn part(mut self) {
        let farewell = async {
            if self.gate.is_open() {
                self.hand_over(b"QUIT\r\n").await?;
            }
            self.stream.shutdown().await
        };
        // Whatever it says now changes nothing any more.
        let _too_late = timeout(PARTING, farewell).await;
        self.counter.close_in_order();
    }

    /// The words for a failed write.
    pub fn broken(&self, error: &io::Error) -> NoReply {
        if self.counter.stopped() { NoReply::Stopped } else { NoReply::Lost(error.to_string()) }
    }

    async fn read_reply(&mut self) -> Result<Reply, NoReply> {
        let mut lines = Vec::new();
        let mut code = None;
        let mut total = 0;
        loop {
            let line = self.read_line().await?;
            total += line.len();
            if total > LONGEST_REPLY {
                return Err(NoReply::Unreadable("it does not end".to_owned()));
            }
            let (this, more, text) = reply_line(&line)?;
            if *code.get_or_insert(this) != this {
                return Err(NoReply::Unreadable("its lines have different codes".to_owned()));
            }
            lines.push(text);
            if !more {
                return Ok(Reply { code: this, lines });
            }
        }
    }

    async fn read_line(&mut self) -> Result<Vec<u8>, NoReply> {
        let mut line = Vec::new();
        loop {
            let buffer = self.stream.fill_buf().await.map_err(|error| NoReply::Lost(error.to_string()))?;
            if buffer.is_empty() {
                return Err(NoReply::Lost("closed by the relay".to_owned()));
            }
            let (taken, ended) = match buffer.iter().position(|b| *b == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), false),
            };
            line.extend_from_slice(buffer.get(..taken).unwrap_or_default());
            self.stream.consume(taken);
            if line.len() > LONGEST_LINE {
                return Err(NoReply::Unreadable("a line is longer than 4096 octets".to_owned()));
            }
            if ended {
                return Ok(line);
            }
        }
    }
}

/// Code, whether more lines follow, and text of one line.
fn reply_line(line: &[u8]) -> Result<(u16, bool, String), NoReply> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches(['\r', '\n']);
    let no_reply = || NoReply::Unreadable("it does not begin with a reply code".to_owned());
    let digits = text.get(..3).filter(|code| code.bytes().all(|b| b.is_ascii_digit())).ok_or_else(no_reply)?;
    let code: u16 = digits.parse().map_err(|_| no_reply())?;
    if !(200..600).contains(&code) {
        return Err(no_reply());
    }
    let mut rest = text.chars().skip(3);
    let more = match rest.next() {
        None | Some(' ') => false,
        Some('-') => true,
        Some(_) => return Err(no_reply()),
    };
    Ok((code, more, rest.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_line_is_a_code_and_perhaps_text() {
        assert_eq!(reply_line(b"250 Ok\r\n"), Ok((250, false, "Ok".to_owned())));
        assert_eq!(reply_line(b"250\r\n"), Ok((250, false, String::new())));
        assert_eq!(reply_line(b"250-SIZE 1\n"), Ok((250, true, "SIZE 1".to_owned())));
        assert_eq!(reply_line(b"554 \xff\r\n"), Ok((554, false, "\u{fffd}".to_owned())));
        for odd in [
            &b"OK\r\n"[..],
            b"25\r\n",
            b"250_x\r\n",
            b"150 x\r\n",
            b"999 x\r\n",
            b"\r\n",
            b"+OK\r\n",
            b"2\xc3\xa40\r\n",
        ] {
            assert!(reply_line(odd).is_err(), "{odd:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_of_a_stranger_breaks_the_reading(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            if let Ok((code, _, _)) = reply_line(&line) {
                proptest::prop_assert!((200..600).contains(&code));
            }
        }
    }
}
