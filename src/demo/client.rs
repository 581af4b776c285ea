//! A plain HTTP client for the daemon's API, one connection a call, nothing repeated.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(40);

/// An answer of the API.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Whether it was marked `Idempotent-Replayed: true`.
    pub replayed: bool,
    /// Body; null where it is no JSON.
    pub body: Value,
}

impl Answer {
    /// A member of the body as text; empty where there is none.
    pub fn text(&self, name: &str) -> String {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

/// Where the API is, and as whom it is called.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
}

impl Client {
    /// A caller without a token.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, token: None }
    }

    /// The same with a token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { address: self.address, token: Some(token.to_owned()) }
    }

    /// Reads.
    ///
    /// # Errors
    /// When the daemon cannot be reached or does not answer in time.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.call("GET", path, None).await
    }

    /// Asks for something.
    ///
    /// # Errors
    /// When the daemon cannot be reached or does not answer in time.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.call("POST", path, Some(body)).await
    }

    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let call = async {
            let stream = TcpStream::connect(self.address).await?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            let mut request = http::Request::builder()
                .method(method)
                .uri(path)
                .header("host", self.address.to_string())
                .header("connection", "close");
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if body.is_some() {
                request = request.header("content-type", "application/json");
            }
            let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
            let response = sender.send_request(request.body(Full::new(bytes))?).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            connection.abort();
            anyhow::Ok(Answer {
                status: head.status.as_u16(),
                replayed: head.headers.get("idempotent-replayed").is_some_and(|value| value == "true"),
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            })
        };
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(answer) => answer.with_context(|| format!("{method} {path}")),
            Err(_) => bail!("{method} {path}: no answer within {} s", PATIENCE.as_secs()),
        }
    }
}
