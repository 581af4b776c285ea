//! A TCP proxy before Postgres: it cuts after any number of bytes, at any byte of a COMMIT or of its reply, and can fall silent.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use settled::demo::fakes::door::reset;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
};

use crate::wire::{Client, Frames, Said, is_ready};

const NEVER: i64 = i64::MAX;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With a reset, both ways.
    Reset,
    /// In good order, both ways.
    Close,
    /// It stays open and swallows everything, both ways, for so long; then a reset.
    Swallow(Duration),
}

/// One cut in what is said about a certain statement.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Part of the text of that statement.
    pub statement: &'static str,
    /// In the COMMIT of the transaction that ran it; otherwise in the statement itself.
    pub commit: bool,
    /// Up: in the message that orders it. Down: in the reply, to the end of ReadyForQuery.
    pub way: Way,
    /// So many bytes of it still pass.
    pub after: usize,
    /// How.
    pub how: How,
}

/// Bytes of a COMMIT, and of the reply to one.
pub const COMMIT: usize = 12;
/// CommandComplete and ReadyForQuery.
pub const REPLY: usize = 18;

struct Shared {
    target: Mutex<SocketAddr>,
    /// Bytes until the next cut, both ways.
    left: AtomicI64,
    /// The cut that waits for its statement.
    armed: Mutex<Option<(Cut, oneshot::Sender<()>)>>,
    /// Everybody's connection ends, so often so far.
    cuts: watch::Sender<(usize, How)>,
    /// New connections are swallowed until then.
    silent_until: Mutex<Option<Instant>>,
}

/// Carries connections to a server, and cuts them.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// A proxy on a free port.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            left: AtomicI64::new(NEVER),
            armed: Mutex::new(None),
            cuts: watch::Sender::new((0, How::Reset)),
            silent_until: Mutex::new(None),
        });
        let sharing = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                tokio::spawn(carry(client, Arc::clone(&sharing)));
            }
        });
        Self { address, shared, task }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// New connections go there.
    pub fn point_to(&self, target: SocketAddr) {
        *locked(&self.shared.target) = target;
    }

    /// Ends every connection now.
    pub fn cut(&self, how: How) {
        self.shared.cut_all(how);
    }

    /// A network that is gone without a word: every connection, also a new one, is swallowed for so long, then reset.
    pub fn fall_silent(&self, lasting: Duration) {
        *locked(&self.shared.silent_until) = Some(Instant::now() + lasting);
        self.shared.cut_all(How::Swallow(lasting));
    }

    /// Resets every connection when so many more bytes have passed, and waits until that has happened.
    pub async fn cut_after(&self, bytes: u32, at_most: Duration) -> bool {
        let mut cuts = self.shared.cuts.subscribe();
        let before = cuts.borrow_and_update().0;
        self.shared.left.store(i64::from(bytes), Ordering::SeqCst);
        matches!(tokio::time::timeout(at_most, cuts.wait_for(|(n, _)| *n > before)).await, Ok(Ok(_)))
    }

    /// The connection that is the next to come by there is cut. Ready when that has happened.
    pub fn arm(&self, cut: Cut) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        *locked(&self.shared.armed) = Some((cut, done));
        wait
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn cut_all(&self, how: How) {
        self.cuts.send_modify(|(n, last)| {
            *n += 1;
            *last = how;
        });
    }

    /// How many of these bytes may still pass. The one who spends the last of them cuts.
    fn allow(&self, bytes: usize) -> usize {
        let wanted = i64::try_from(bytes).unwrap();
        let before = self.left.fetch_sub(wanted, Ordering::SeqCst);
        if before > wanted {
            return bytes;
        }
        if before > 0 {
            self.left.store(NEVER, Ordering::SeqCst);
            self.cut_all(How::Reset);
        }
        usize::try_from(before.max(0)).unwrap()
    }

    /// The armed cut, if this is what it waits for.
    fn takes(&self, said: Said, client: &Client) -> Option<(Cut, oneshot::Sender<()>)> {
        locked(&self.armed).take_if(|(cut, _)| match said {
            Said::Else => false,
            Said::Statement => !cut.commit && client.runs(cut.statement),
            Said::Commit => cut.commit && client.ran(cut.statement),
        })
    }

    fn silent_for(&self) -> Option<Duration> {
        let until = *locked(&self.silent_until);
        until.and_then(|until| until.checked_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

/// A reply is on its way and will be cut.
struct Doomed {
    /// ReadyForQuery messages that come before it.
    before: usize,
    left: usize,
    how: How,
    done: oneshot::Sender<()>,
}

/// One connection.
struct Carrier {
    client: TcpStream,
    server: TcpStream,
    shared: Arc<Shared>,
    said: Client,
    doomed: Option<Doomed>,
}

async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.borrow_and_update();
    if let Some(left) = shared.silent_for() {
        return swallow(&mut [client], left).await;
    }
    let target = *locked(&shared.target);
    let Ok(server) = TcpStream::connect(target).await else { return reset(client) };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut carrier = Carrier { client, server, shared, said: Client::default(), doomed: None };
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    let (mut from_client, mut from_server) = (Frames::default(), Frames::default());
    // What is in a buffer when the cut comes is lost, as it would be with a broken network.
    let how = loop {
        let ended = tokio::select! {
            biased;
            _ = cuts.changed() => Some(cuts.borrow().1),
            read = carrier.client.read(&mut up) => match read {
                Ok(read @ 1..) => {
                    from_client.push(&up[..read]);
                    carrier.upwards(&mut from_client).await
                }
                Ok(0) | Err(_) => Some(How::Reset),
            },
            read = carrier.server.read(&mut down) => match read {
                Ok(read @ 1..) => {
                    from_server.push(&down[..read]);
                    carrier.downwards(&mut from_server).await
                }
                Ok(0) | Err(_) => Some(How::Reset),
            },
        };
        if let Some(how) = ended {
            break how;
        }
    };
    let Carrier { client, server, .. } = carrier;
    match how {
        How::Reset => {
            reset(client);
            reset(server);
        }
        How::Close => {}
        How::Swallow(lasting) => swallow(&mut [client, server], lasting).await,
    }
}

/// Reads and throws away, then resets.
async fn swallow(streams: &mut [TcpStream], lasting: Duration) {
    let until = tokio::time::Instant::now() + lasting;
    let one = |stream: &mut TcpStream| {
        let mut taken = Vec::with_capacity(4096);
        loop {
            match stream.try_read_buf(&mut taken) {
                Ok(1..) => taken.clear(),
                Ok(0) | Err(_) => return,
            }
        }
    };
    while tokio::time::Instant::now() < until {
        streams.iter_mut().for_each(one);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for stream in streams {
        let _ = socket2::SockRef::from(&*stream).set_linger(Some(Duration::ZERO));
    }
}

impl Carrier {
    /// Passes what the client says, message by message; how the connection ends, if it does.
    async fn upwards(&mut self, frames: &mut Frames) -> Option<How> {
        while let Some(message) = frames.next(self.said.started()) {
            let owed = self.said.owed;
            let said = self.said.says(&message);
            if let Some((cut, done)) = self.shared.takes(said, &self.said) {
                match cut.way {
                    Way::Up => {
                        let _ = self.server.write_all(&message[..cut.after.min(message.len())]).await;
                        let _ = done.send(());
                        return Some(cut.how);
                    }
                    Way::Down => {
                        self.doomed = Some(Doomed { before: owed, left: cut.after, how: cut.how, done });
                    }
                }
            }
            let allowed = self.shared.allow(message.len());
            if self.server.write_all(&message[..allowed]).await.is_err() || allowed < message.len() {
                return Some(How::Reset);
            }
        }
        None
    }

    /// The same for what the server says.
    async fn downwards(&mut self, frames: &mut Frames) -> Option<How> {
        loop {
            let bare = self.said.bare_answers > 0;
            let message = (if bare { frames.exactly(1) } else { frames.next(true) })?;
            let ready = !bare && is_ready(&message);
            self.said.bare_answers -= usize::from(bare);
            self.said.owed = self.said.owed.saturating_sub(usize::from(ready));
            if let Some(doomed) = self.doomed.as_mut().filter(|doomed| doomed.before == 0) {
                let passes = doomed.left.min(message.len());
                doomed.left -= passes;
                let over = passes < message.len() || ready || doomed.left == 0;
                let _ = self.client.write_all(&message[..passes]).await;
                if over && let Some(Doomed { how, done, .. }) = self.doomed.take() {
                    let _ = done.send(());
                    return Some(how);
                }
                continue;
            }
            if let Some(doomed) = &mut self.doomed {
                doomed.before -= usize::from(ready);
            }
            let allowed = self.shared.allow(message.len());
            if self.client.write_all(&message[..allowed]).await.is_err() || allowed < message.len() {
                return Some(How::Reset);
            }
        }
    }
}
