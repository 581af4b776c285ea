//! A TCP proxy that resets everything it carries once a given number of bytes has passed.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use settled::demo::fakes::door::reset;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

const NEVER: i64 = i64::MAX;

struct Shared {
    /// Bytes until the next cut, both ways.
    left: AtomicI64,
    cuts: watch::Sender<usize>,
}

/// Carries connections to a server, and cuts them all at once.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// A proxy on a free port.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { left: AtomicI64::new(NEVER), cuts: watch::Sender::new(0) });
        let sharing = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                tokio::spawn(carry(client, target, Arc::clone(&sharing)));
            }
        });
        Self { address, shared, task }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Resets every connection when so many more bytes have passed, and waits until that has happened.
    pub async fn cut_after(&self, bytes: u32, at_most: Duration) -> bool {
        let mut cuts = self.shared.cuts.subscribe();
        let before = *cuts.borrow_and_update();
        self.shared.left.store(i64::from(bytes), Ordering::SeqCst);
        matches!(tokio::time::timeout(at_most, cuts.wait_for(|n| *n > before)).await, Ok(Ok(_)))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// How many of these bytes may still pass. The one who spends the last of them cuts.
    fn allow(&self, bytes: usize) -> usize {
        let wanted = i64::try_from(bytes).unwrap();
        let before = self.left.fetch_sub(wanted, Ordering::SeqCst);
        if before > wanted {
            return bytes;
        }
        if before > 0 {
            self.left.store(NEVER, Ordering::SeqCst);
            self.cuts.send_modify(|n| *n += 1);
        }
        usize::try_from(before.max(0)).unwrap()
    }
}

async fn carry(mut client: TcpStream, target: SocketAddr, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.borrow_and_update();
    let Ok(mut server) = TcpStream::connect(target).await else { return reset(client) };
    // What is in a buffer when the cut comes is lost, as it would be with a broken network.
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            biased;
            _ = cuts.changed() => break,
            read = client.read(&mut up) => if !pass(read, &up, &mut server, &shared).await { break },
            read = server.read(&mut down) => if !pass(read, &down, &mut client, &shared).await { break },
        }
    }
    reset(client);
    reset(server);
}

async fn pass(read: std::io::Result<usize>, buffer: &[u8], to: &mut TcpStream, shared: &Shared) -> bool {
    let Ok(read @ 1..) = read else { return false };
    let allowed = shared.allow(read);
    to.write_all(&buffer[..allowed]).await.is_ok() && allowed == read
}
