//! A caller of the HTTP API: one request on one connection, no retries, no redirects.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use url::Url;

use super::{
    arguments::Api,
    exit::{Exit, Failure},
};
use crate::config::secret::SecretRef;

/// Longest answer, bytes.
const MOST: usize = 4 * 1024 * 1024;
/// Longest time for a call; a bounded wait of the API fits in.
const LONGEST: Duration = Duration::from_secs(60);

/// Where the API is and who calls it.
pub(super) struct Client {
    base: Url,
    token: SecretString,
}

/// What came back.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Client {
    /// `None` where the database is to be used instead.
    pub(super) fn of(api: &Api) -> Result<Option<Self>, Failure> {
        let Some(url) = &api.url else { return Ok(None) };
        let base = Url::parse(url)
            .ok()
            .filter(|u| matches!(u.scheme(), "http" | "https") && u.host_str().is_some())
            .ok_or_else(|| Failure::new(Exit::Usage, "--url: must be http://host:port or https://host"))?;
        let token = match &api.token_file {
            Some(path) => SecretRef::File(path.clone()).load()?,
            None => SecretRef::Env("SETTLED_TOKEN".to_owned())
                .load()
                .map_err(|_| Failure::new(Exit::Usage, "give --token-file, or set SETTLED_TOKEN"))?,
        };
        Ok(Some(Self { base, token }))
    }

    /// One call.
    pub(super) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Reply, Failure> {
        let reply = tokio::time::timeout(LONGEST, self.exchange(method, path, headers, body)).await;
        match reply {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(Failure { exit: Exit::Unavailable, error }),
            Err(_) => Err(Failure::new(
                Exit::Unavailable,
                format!("the API did not answer within {} s; make the same call again", LONGEST.as_secs()),
            )),
        }
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> anyhow::Result<Reply> {
        let host = self.base.host_str().unwrap_or_default();
        let port = self.base.port_or_known_default().unwrap_or(80);
        let tcp = TcpStream::connect((host.trim_matches(['[', ']']), port))
            .await
            .with_context(|| format!("connect to {host}:{port}"))?;
        let prefix = self.base.path().trim_end_matches('/');
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(header::HOST, format!("{host}:{port}"))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token.expose_secret()));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        if self.base.scheme() == "https" {
            send(tls(tcp, host).await?, request).await
        } else {
            send(tcp, request).await
        }
    }
}

async fn tls(tcp: TcpStream, host: &str) -> anyhow::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.context("TLS")
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.context("the connection ended without an answer")?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MOST)
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!("the answer could not be read: {error}"))?
        .to_bytes();
    driver.abort();
    Ok(Reply { status, body })
}
