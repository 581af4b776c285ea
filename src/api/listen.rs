//! Accepting connections: bounded in number, in the time until a head has arrived, and in the time an answer may lie unread.
//!
//! Whoever can reach the port can open connections before a token is asked for. They must not take the file descriptors that
//! sending and the ledger need.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::task::TaskTracker;

use crate::lifecycle::Shutdown;

/// Connections at the same time; the next ones wait in the backlog of the socket.
const CONNECTIONS: usize = 512;

/// For the head of a request, and between two requests of one connection.
const HEAD: Duration = Duration::from_secs(30);

/// After that without progress of its reader an answer is given up (TCP user timeout, RFC 5482).
const UNREAD: Duration = Duration::from_secs(60);

/// Pause after an accept that failed: mostly the file descriptors are used up, and trying at once does not free any.
const BREATH: Duration = Duration::from_millis(200);

/// Serves until the daemon stops; calls that are being answered may finish, until it is in a hurry.
pub(super) async fn serve(listener: TcpListener, router: Router, shutdown: &Shutdown) {
    let service = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let open = TaskTracker::new();
    let stopping = shutdown.stopping();
    tokio::pin!(stopping);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = listener.accept().await?;
            Ok::<_, io::Error>((stream, place))
        };
        tokio::select! {
            accepted = accepted => match accepted {
                Ok((stream, place)) => {
                    open.spawn(connection(stream, service.clone(), shutdown.clone(), place));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(BREATH).await;
                }
            },
            () = &mut stopping => break,
        }
    }
    drop(listener);
    open.close();
    tokio::select! {
        () = open.wait() => {}
        () = shutdown.hurried() => {}
    }
}

async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    shutdown: Shutdown,
    _place: OwnedSemaphorePermit,
) {
    // Neither is worth refusing a call for.
    let _same_without = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _same_without = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = shutdown.stopping() => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                ended = served => ended,
                () = shutdown.hurried() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
