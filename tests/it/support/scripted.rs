//! A downstream that answers by a script: one HTTP/1.1 request for one connection, all requests kept.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Got {
    pub method: String,
    /// Path and query, not decoded.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(each, _)| each == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    /// A decoded query parameter.
    pub fn query(&self, name: &str) -> Option<String> {
        let url = url::Url::parse(&format!("http://h{}", self.target)).unwrap();
        url.query_pairs().find(|(each, _)| each == name).map(|(_, value)| value.into_owned())
    }
}

/// What the script does with a request.
pub enum Act {
    Reply(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Reads everything and says nothing.
    Silence,
    /// Reads everything and closes.
    Close,
}

/// JSON with a status.
pub fn json(status: u16, body: &serde_json::Value) -> Act {
    Act::Reply(status, vec![("content-type", "application/json".to_owned())], body.to_string().into_bytes())
}

pub struct Scripted {
    /// `http://127.0.0.1:port`.
    pub base: String,
    got: Arc<Mutex<Vec<Got>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Scripted {
    pub async fn new(script: impl Fn(&Got) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::new(Mutex::new(Vec::new()));
        let (kept, script) = (Arc::clone(&got), Arc::new(script));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept), Arc::clone(&script)));
            }
        });
        Self { base, got, task }
    }

    /// All requests so far.
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, kept: Arc<Mutex<Vec<Got>>>, script: Arc<impl Fn(&Got) -> Act>) {
    let Some(got) = read(&mut stream).await else { return };
    kept.lock().unwrap().push(got.clone());
    match script(&got) {
        Act::Reply(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            let _gone = stream.write_all(head.as_bytes()).await;
            if got.method != "HEAD" {
                let _gone = stream.write_all(&body).await;
            }
            let _gone = stream.shutdown().await;
        }
        Act::Silence => {
            // Until the client gives up.
            let _gone = stream.read(&mut [0; 1]).await;
        }
        Act::Close => {}
    }
}

async fn read(stream: &mut TcpStream) -> Option<Got> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut body = bytes.split_off(end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Got { method, target, headers, body })
}
