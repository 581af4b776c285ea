//! From clear text to TLS on one connection (RFC 3501 6.2.1, RFC 2595 3.1). There is no way back: a server that does not do it
//! is not logged in to.
//!
//! Read byte by byte, so that nothing that was said in clear text is taken for a part of the protected conversation; what a
//! server, or somebody between, has sent on beyond its reply breaks the handshake.

use std::{sync::Arc, time::Duration};

use rustls::ClientConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::channels::wire::{counted::Stream, dial};

/// Longest line that is read.
const LINE: usize = 4096;
/// Most lines before the reply.
const LINES: u32 = 50;

/// Limits of the two phases.
pub(super) struct Limits {
    pub command: Duration,
    pub tls: Duration,
}

/// Reads the greeting, asks for TLS and shakes hands. The protected stream has no greeting.
pub(super) async fn upgrade(
    mut stream: Stream,
    host: &str,
    config: Arc<ClientConfig>,
    limits: &Limits,
) -> Result<Stream, String> {
    match timeout(limits.command, ask(&mut stream)).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return Err(format!("STARTTLS: {why}")),
        Err(_elapsed) => {
            return Err(format!("STARTTLS: no answer within {}", humantime::format_duration(limits.command)));
        }
    }
    dial::tls(stream, host, config, limits.tls).await.map_err(|error| error.to_string())
}

async fn ask(stream: &mut Stream) -> Result<(), String> {
    // PREAUTH would be a log-in that TLS comes too late for.
    if !starts(&line(stream).await?, "* OK") {
        return Err("the greeting is not OK".to_owned());
    }
    let broken = |error: std::io::Error| error.to_string();
    stream.write_all(b"t1 STARTTLS\r\n").await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    for _ in 0..LINES {
        let line = line(stream).await?;
        if starts(&line, "t1 OK") {
            return Ok(());
        }
        if starts(&line, "* BYE") {
            return Err("answered BYE".to_owned());
        }
        if !line.starts_with(b"* ") {
            return Err("refused; nothing is said in clear text".to_owned());
        }
    }
    Err(format!("no reply in {LINES} lines"))
}

fn starts(line: &[u8], with: &str) -> bool {
    line.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        && line.get(with.len()).is_none_or(|next| *next == b' ')
}

async fn line(stream: &mut Stream) -> Result<Vec<u8>, String> {
    let mut line = Vec::new();
    while line.len() < LINE {
        match stream.read_u8().await {
            Ok(b'\n') => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            Ok(byte) => line.push(byte),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err("connection closed".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("a line longer than {LINE} bytes"))
}
