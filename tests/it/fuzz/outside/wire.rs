//! A downstream on the loopback that says what it is given, a turn at a time, and closes when it has no more to say.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    time::timeout,
};

/// Between the turns of an input.
pub const TURN: u8 = 0x1e;
/// Nothing that comes from outside may hold us up for longer; every limit of the settings used here is far below.
const LONGEST: Duration = Duration::from_secs(20);
/// A peer that says nothing for so long waits for the rest of what it was told: there is none, and the downstream closes.
const PATIENCE: Duration = Duration::from_millis(20);

thread_local! {
    static PATIENT: Cell<bool> = const { Cell::new(false) };
}

/// From now on a downstream on this thread waits, however slow the machine is: for inputs that are known to be whole.
pub fn wait_for_slow_machines() {
    PATIENT.set(true);
}

/// Most that is read of one request or message.
const MOST: usize = 1 << 20;

/// When the downstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// First, and after each line; after a turn that begins with 354 it waits for the end of a message.
    Relay,
    /// First, and after each line; `%T` becomes the tag of that line.
    Mailbox,
    /// After each request, on a connection each.
    Server,
}

const END_OF_MESSAGE: &[u8] = b"\r\n.\r\n";

/// What was said.
#[derive(Debug, Default)]
pub struct Heard {
    /// Turns that were given.
    pub given: Vec<Vec<u8>>,
    /// The end of a message was read.
    pub whole_message: bool,
    /// The turn that answered it.
    pub answer: Option<Vec<u8>>,
    in_message: bool,
    unread: Vec<u8>,
}

/// A place to listen at, and something made once for its port.
struct Place<T> {
    runtime: Runtime,
    listener: TcpListener,
    made: T,
}

/// Plays `turns` against what `client` does with the thing that `make` made for the port; both are kept for the next call.
pub struct Downstream<T>(RefCell<Option<Place<T>>>);

impl<T> Downstream<T> {
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    pub fn play<R>(
        &self,
        make: impl FnOnce(u16) -> T,
        speaks: Speaks,
        turns: &[Vec<u8>],
        client: impl AsyncFnOnce(&T) -> R,
    ) -> (R, Heard) {
        let mut place = self.0.borrow_mut();
        let Place { runtime, listener, made } = place.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let made = make(listener.local_addr().unwrap().port());
            Place { runtime, listener, made }
        });
        let mut heard = Heard::default();
        let result = runtime.block_on(async {
            let mut turns = turns.iter().cloned();
            tokio::select! {
                biased;
                result = timeout(LONGEST, client(made)) => result.expect("it takes too long"),
                () = serve(listener, speaks, &mut turns, &mut heard) => unreachable!("it serves for ever"),
            }
        });
        (result, heard)
    }
}

/// The turns of an input.
pub fn turns(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split(|byte| *byte == TURN).take(64).map(<[u8]>::to_vec).collect()
}

async fn serve(listener: &TcpListener, speaks: Speaks, turns: &mut impl Iterator<Item = Vec<u8>>, heard: &mut Heard) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let _the_peer_went = match speaks {
            Speaks::Server => answer(&mut stream, turns, heard).await,
            Speaks::Relay | Speaks::Mailbox => converse(&mut stream, speaks, turns, heard).await,
        };
        let _closed = stream.shutdown().await;
        // The peer closes first, or a reset could take back what it has not read yet.
        let mut rest = std::mem::take(&mut heard.unread);
        let _gone = until(&mut stream, &mut rest, END_OF_MESSAGE).await.is_ok_and(|end| {
            heard.whole_message |= heard.in_message && end.is_some();
            true
        });
        let _gone = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

async fn answer(
    stream: &mut TcpStream,
    turns: &mut impl Iterator<Item = Vec<u8>>,
    heard: &mut Heard,
) -> std::io::Result<()> {
    let mut read = Vec::new();
    let mut needed = None;
    while needed.is_none_or(|needed| read.len() < needed) && read.len() < MOST {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        if needed.is_none() {
            needed = head_end(&read).map(|end| end + length(&read[..end]));
        }
    }
    if let Some(turn) = turns.next() {
        stream.write_all(&turn).await?;
        heard.given.push(turn);
    }
    Ok(())
}

fn head_end(read: &[u8]) -> Option<usize> {
    read.windows(4).position(|part| part == b"\r\n\r\n").map(|at| at + 4)
}

fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0)
}

async fn converse(
    stream: &mut TcpStream,
    speaks: Speaks,
    turns: &mut impl Iterator<Item = Vec<u8>>,
    heard: &mut Heard,
) -> std::io::Result<()> {
    let mut tag = String::new();
    for turn in turns {
        let answers_the_message = heard.in_message;
        heard.in_message = speaks == Speaks::Relay && turn.starts_with(b"354");
        let said = if speaks == Speaks::Mailbox { tagged(&turn, &tag) } else { turn };
        stream.write_all(&said).await?;
        if answers_the_message {
            heard.answer = Some(said.clone());
        }
        heard.given.push(said);
        let end: &[u8] = if heard.in_message { END_OF_MESSAGE } else { b"\r\n" };
        let Ok(line) =
            timeout(if PATIENT.get() { LONGEST } else { PATIENCE }, until(stream, &mut heard.unread, end)).await
        else {
            return Ok(());
        };
        let Some(line) = line? else { return Ok(()) };
        heard.whole_message |= heard.in_message;
        tag = String::from_utf8_lossy(&line).split(' ').next().unwrap_or_default().to_owned();
    }
    Ok(())
}

async fn until(stream: &mut TcpStream, read: &mut Vec<u8>, end: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(at) = read.windows(end.len()).position(|part| part == end) {
            return Ok(Some(read.drain(..at + end.len()).collect()));
        }
        if read.len() > MOST || stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}

fn tagged(turn: &[u8], tag: &str) -> Vec<u8> {
    let mut said = Vec::with_capacity(turn.len());
    let mut rest = turn;
    while let Some(at) = rest.windows(2).position(|part| part == b"%T") {
        said.extend_from_slice(&rest[..at]);
        said.extend_from_slice(tag.as_bytes());
        rest = &rest[at + 2..];
    }
    said.extend_from_slice(rest);
    said
}
