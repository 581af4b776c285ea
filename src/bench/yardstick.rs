//! What the machine does without us: flushes, and bare POSTs to the same sink.

use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Flushes of an 8 kB write a second, on the disk of the database.
pub(super) fn fdatasync(directory: &Path, lasting: Duration) -> anyhow::Result<f64> {
    let path = directory.join("flush.probe");
    let mut file = File::create(&path)?;
    let block = [7_u8; 8192];
    let began = Instant::now();
    let mut flushes = 0_u32;
    while began.elapsed() < lasting {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&block)?;
        file.sync_data()?;
        flushes += 1;
    }
    let rate = f64::from(flushes) / began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// POSTs of 500 bytes a second by a bare loop.
pub(super) async fn posts(address: SocketAddr, concurrency: u32, keep: bool, lasting: Duration) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        loops.spawn(async move {
            let body = Bytes::from(vec![b'x'; 500]);
            let mut sent = 0_u64;
            let mut connection = None;
            while began.elapsed() < lasting {
                if connection.is_none() || !keep {
                    connection = Some(connect(address).await?);
                }
                let Some(sender) = connection.as_mut() else { continue };
                let request = Request::post("/hook").header("host", "sink").body(Full::new(body.clone()))?;
                sender.ready().await?;
                sender.send_request(request).await?.into_body().collect().await?;
                sent += 1;
            }
            anyhow::Ok(sent)
        });
    }
    let mut sent = 0;
    while let Some(done) = loops.join_next().await {
        sent += done??;
    }
    Ok(sent as f64 / began.elapsed().as_secs_f64())
}

/// A connection whose other half runs by itself.
pub(super) async fn connect(address: SocketAddr) -> anyhow::Result<http1::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
