//! A proxy that makes two requests of one, as a service mesh with retries does: both reach the server, one answer comes back.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// See the module. Ends with the value.
pub struct Doubling {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Doubling {
    /// In front of this server.
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server));
            }
        });
        Self { address, task }
    }
}

impl Drop for Doubling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request, twice; then the connection ends.
async fn pass(mut client: TcpStream, server: SocketAddr) {
    let mut request = Vec::new();
    while !whole(&request) {
        if client.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let mut answer = Vec::new();
    for _ in 0..2 {
        let mut upstream = TcpStream::connect(server).await.unwrap();
        upstream.write_all(&request).await.unwrap();
        answer.clear();
        while !whole(&answer) && upstream.read_buf(&mut answer).await.unwrap_or(0) > 0 {}
    }
    let _gone = client.write_all(&answer).await;
}

/// Head, and as much body as it names.
fn whole(message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    body.len() >= length.unwrap_or(0)
}
