//! A downstream over a bare listener that plays one script for each connection and remembers every byte it read.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use settled::domain::gate::{BoxFuture, Gate};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore, watch},
};

/// More bytes than a sender's buffer and ours take together: a peer that stops reading leaves such a body unfinished.
pub const BIG: usize = 6 << 20;

/// One step of a connection's script.
#[derive(Debug, Clone)]
pub enum Step {
    /// Read one whole HTTP request (head, and as many body bytes as it declares).
    Request,
    /// Read one more whole request than before.
    Again,
    /// Wait until bytes have come, and leave them unread.
    Arrives,
    /// Wait for this signal.
    Until(Arc<Notify>),
    /// Read this many bytes.
    Read(usize),
    /// Send these bytes.
    Send(Vec<u8>),
    /// Send these bytes one at a time, so often; stops when the peer has gone.
    Trickle(Vec<u8>, Duration),
    /// Neither read nor write, for ever.
    Stall,
    /// Wait until the peer closes, reading on; notes whether it was a reset.
    Hold,
    /// Close with a reset.
    Reset,
    /// Close in order (also the end of every script).
    Close,
}

/// What one connection saw.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Every byte read.
    pub bytes: Vec<u8>,
    /// The peer ended with a reset.
    pub reset: bool,
    /// The script is over.
    pub over: bool,
}

impl Seen {
    /// The head as text.
    pub fn head(&self) -> String {
        let end = find(&self.bytes, b"\r\n\r\n").unwrap_or(self.bytes.len());
        String::from_utf8_lossy(&self.bytes[..end]).into_owned()
    }

    /// The body bytes.
    pub fn body(&self) -> &[u8] {
        find(&self.bytes, b"\r\n\r\n").map_or(&[], |end| &self.bytes[end + 4..])
    }

    /// Value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<String> {
        self.head().lines().skip(1).find_map(|line| {
            let (n, v) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim().to_owned())
        })
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

/// A running fake downstream.
pub struct Fake {
    /// Where it listens.
    pub address: SocketAddr,
    seen: watch::Receiver<Vec<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    /// Plays `scripts` in order, one a connection; the last one again for every further connection.
    pub async fn play(scripts: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        socket2::SockRef::from(&listener).set_recv_buffer_size(64 * 1024).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, seen) = watch::channel(Vec::new());
        let tell = Arc::new(tell);
        let mut scripts: VecDeque<Vec<Step>> = scripts.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut last = scripts.pop_front().unwrap_or_default();
            while let Ok((stream, _)) = listener.accept().await {
                let script = last.clone();
                last = scripts.pop_front().unwrap_or(last);
                let mut number = 0;
                tell.send_modify(|all| {
                    number = all.len();
                    all.push(Seen::default());
                });
                tokio::spawn(connection(stream, script, Arc::clone(&tell), number));
            }
        });
        Self { address, seen, task }
    }

    /// A script that reads a request and answers.
    pub async fn answering(reply: impl Into<Vec<u8>>) -> Self {
        Self::play([vec![Step::Request, Step::Send(reply.into()), Step::Close]]).await
    }

    /// `http://…` and a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What has been seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    /// Waits until what was seen satisfies `when`; panics after ten seconds.
    pub async fn wait_for(&self, when: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let mut seen = self.seen.clone();
        let all = tokio::time::timeout(Duration::from_secs(10), seen.wait_for(|all| when(all)))
            .await
            .expect("the downstream did not see it in time")
            .expect("the downstream is gone");
        all.clone()
    }

    /// Waits until the first connection's script is over.
    pub async fn first(&self) -> Seen {
        self.wait_for(|all| all.first().is_some_and(|s| s.over)).await[0].clone()
    }
}

async fn connection(mut stream: TcpStream, script: Vec<Step>, tell: Arc<watch::Sender<Vec<Seen>>>, number: usize) {
    for step in script {
        if !one(&mut stream, step, &tell, number).await {
            break;
        }
    }
    // Closed before anybody is told.
    drop(stream);
    tell.send_modify(|all| all[number].over = true);
}

async fn one(stream: &mut TcpStream, step: Step, tell: &watch::Sender<Vec<Seen>>, number: usize) -> bool {
    match step {
        Step::Request => read_until(stream, tell, number, whole_request).await,
        Step::Again => {
            let before = requests(&tell.borrow()[number].bytes);
            read_until(stream, tell, number, |bytes| requests(bytes) > before).await
        }
        Step::Arrives => stream.peek(&mut [0]).await.is_ok_and(|n| n > 0),
        Step::Until(signal) => {
            signal.notified().await;
            true
        }
        Step::Read(n) => read_until(stream, tell, number, |bytes| bytes.len() >= n).await,
        Step::Send(bytes) => stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok(),
        Step::Trickle(bytes, every) => {
            for byte in bytes {
                if stream.write_all(&[byte]).await.is_err() {
                    return false;
                }
                tokio::time::sleep(every).await;
            }
            true
        }
        Step::Stall => std::future::pending().await,
        Step::Hold => read_until(stream, tell, number, |_| false).await,
        Step::Reset => {
            stream.set_zero_linger().unwrap();
            false
        }
        Step::Close => false,
    }
}

/// True when `enough`; false when the peer has closed.
async fn read_until(
    stream: &mut TcpStream,
    tell: &watch::Sender<Vec<Seen>>,
    number: usize,
    enough: impl Fn(&[u8]) -> bool,
) -> bool {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if enough(&tell.borrow()[number].bytes) {
            return true;
        }
        match stream.read(&mut buffer).await {
            Ok(0) => return false,
            Ok(n) => tell.send_modify(|all| all[number].bytes.extend_from_slice(&buffer[..n])),
            Err(_reset) => {
                tell.send_modify(|all| all[number].reset = true);
                return false;
            }
        }
    }
}

/// A head and as many body bytes as it declares.
pub fn whole_request(bytes: &[u8]) -> bool {
    requests(bytes) > 0
}

/// How many whole requests these bytes are.
pub fn requests(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some(length) = first_request(bytes).filter(|length| *length <= bytes.len()) {
        bytes = &bytes[length..];
        count += 1;
    }
    count
}

/// The length of the first request, as far as its head is whole.
fn first_request(bytes: &[u8]) -> Option<usize> {
    let end = find(bytes, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(0, |value| value.trim().parse::<usize>().unwrap());
    Some(end + 4 + length)
}

/// A whole reply with a JSON body.
pub fn reply(status: &str, body: &str) -> Vec<u8> {
    reply_with(status, "Content-Type: application/json\r\n", body)
}

/// A whole reply with further header lines.
pub fn reply_with(status: &str, lines: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A gate that a test turns.
pub struct TestGate {
    open: Mutex<bool>,
    answer: Mutex<bool>,
    asked: watch::Sender<u32>,
    answers: Semaphore,
}

impl TestGate {
    /// Open, and answers the last question at once with yes.
    pub fn open() -> Arc<Self> {
        let gate = Self::holding();
        gate.answer(true);
        gate
    }

    /// Open, but the last question stays unanswered until [`Self::answer`].
    pub fn holding() -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::new(true),
            answer: Mutex::new(false),
            asked: watch::channel(0).0,
            answers: Semaphore::new(0),
        })
    }

    /// Answers the last question.
    pub fn answer(&self, yes: bool) {
        *self.answer.lock().unwrap() = yes;
        self.answers.add_permits(1_000);
    }

    /// The attempt's time is over.
    pub fn shut(&self) {
        *self.open.lock().unwrap() = false;
    }

    /// How often the last question was asked.
    pub fn asked(&self) -> u32 {
        *self.asked.borrow()
    }

    /// Waits until the last question is asked.
    pub async fn wait_asked(&self) {
        let mut asked = self.asked.subscribe();
        tokio::time::timeout(Duration::from_secs(10), asked.wait_for(|n| *n > 0))
            .await
            .expect("the gate was not asked in time")
            .expect("the gate is gone");
    }
}

impl Gate for TestGate {
    fn is_open(&self) -> bool {
        *self.open.lock().unwrap()
    }

    fn remaining(&self) -> Duration {
        if self.is_open() { Duration::from_secs(60) } else { Duration::ZERO }
    }

    fn last_bytes(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            self.asked.send_modify(|n| *n += 1);
            self.answers.acquire().await.unwrap().forget();
            *self.answer.lock().unwrap()
        })
    }
}
