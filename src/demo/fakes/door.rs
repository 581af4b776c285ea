//! The listening side of a fake: takes connections, can refuse them, and forgets everything when dropped.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::FutureExt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::{JoinHandle, JoinSet},
};

use crate::domain::gate::BoxFuture;

/// Serves one connection to its end.
pub type Serve = Arc<dyn Fn(TcpStream) -> BoxFuture<'static, ()> + Send + Sync>;

enum Order {
    Refuse,
    Accept,
    Cut,
}

/// A loopback listener with its connections.
pub struct Door {
    address: SocketAddr,
    orders: mpsc::Sender<(Order, oneshot::Sender<io::Result<()>>)>,
    accepted: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Door {
    /// Opens a door on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn open(serve: Serve) -> io::Result<Self> {
        Self::open_at(0, serve).await
    }

    /// Opens it on this port; 0 is any free one.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn open_at(port: u16, serve: Serve) -> io::Result<Self> {
        let listener = listen(bound(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?)?;
        let address = listener.local_addr()?;
        let (orders, inbox) = mpsc::channel(4);
        let accepted = Arc::new(AtomicU64::new(0));
        let task = tokio::spawn(run(address, listener, inbox, serve, Arc::clone(&accepted)));
        Ok(Self { address, orders, accepted, task })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections taken so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// From now on connections are refused; the port stays ours, open conversations go on.
    ///
    /// # Errors
    /// When the port could not be kept.
    pub async fn refuse(&self) -> io::Result<()> {
        self.order(Order::Refuse).await
    }

    /// Takes connections again.
    ///
    /// # Errors
    /// When the port cannot be listened on.
    pub async fn accept(&self) -> io::Result<()> {
        self.order(Order::Accept).await
    }

    /// Drops every open conversation.
    ///
    /// # Errors
    /// When the door is gone.
    pub async fn cut(&self) -> io::Result<()> {
        self.order(Order::Cut).await
    }

    async fn order(&self, order: Order) -> io::Result<()> {
        let gone = || io::Error::other("the fake has ended");
        let (done, wait) = oneshot::channel();
        self.orders.send((order, done)).await.map_err(|_| gone())?;
        wait.await.map_err(|_| gone())?
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    address: SocketAddr,
    listener: TcpListener,
    mut inbox: mpsc::Receiver<(Order, oneshot::Sender<io::Result<()>>)>,
    serve: Serve,
    accepted: Arc<AtomicU64>,
) {
    let mut conversations = JoinSet::new();
    let mut listener = Some(listener);
    // Bound without listening: the kernel refuses connections, and nobody else gets the port.
    let mut kept: Option<Socket> = None;
    loop {
        let next = match &listener {
            Some(listener) => listener.accept().boxed(),
            None => std::future::pending().boxed(),
        };
        tokio::select! {
            taken = next => if let Ok((stream, _)) = taken {
                accepted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_nodelay(true);
                conversations.spawn(serve(stream));
            },
            Some(_) = conversations.join_next() => {}
            order = inbox.recv() => {
                let Some((order, done)) = order else { return };
                let result = match order {
                    Order::Refuse => {
                        drop(listener.take());
                        bound(address).map(|socket| kept = Some(socket))
                    }
                    Order::Accept if listener.is_some() => Ok(()),
                    Order::Accept => {
                        kept.take().map_or_else(|| bound(address), Ok).and_then(listen).map(|l| listener = Some(l))
                    }
                    Order::Cut => {
                        conversations.shutdown().await;
                        Ok(())
                    }
                };
                let _ = done.send(result);
            }
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// Closes with a reset instead of an orderly end.
pub fn reset(stream: TcpStream) {
    let _ = SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
    drop(stream);
}
