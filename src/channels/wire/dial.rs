//! Resolve once, check the address that is about to be dialled, dial it.
//!
//! Used by every channel and every look-up. The address that was checked is the one that is connected to, so a name that
//! changes its mind between the two gains nothing. Every error here is proof that no byte of a request has left.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use ipnet::IpNet;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};

use super::{
    counted::{Socket, Stream},
    guard::{self, Blocked},
};
use crate::domain::gate::BoxFuture;

/// Why no conversation began.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The name gave no address.
    #[error("name {host} not resolved: {why}")]
    NotResolved {
        /// The name.
        host: String,
        /// What the resolver said.
        why: String,
    },
    /// Every address that the name gave is refused by the egress guard.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// Refused, unreachable, or no socket to be had.
    #[error("no connection to {address}: {why}")]
    Refused {
        /// The last address that was tried.
        address: SocketAddr,
        /// What the kernel said.
        why: String,
    },
    /// Not connected in time.
    #[error("no connection within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    /// The TLS handshake failed or did not end in time.
    #[error("no TLS with {host}: {why}")]
    Tls {
        /// The name that the certificate must carry.
        host: String,
        /// What failed.
        why: String,
    },
}

/// Turns a name into addresses. The system's resolver, unless a test brings its own.
pub trait Resolve: Send + Sync {
    /// All addresses of `host`, in the order they should be tried.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Where to connect to, and how it is found.
pub struct Target<'a> {
    /// Name or address literal, without brackets.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Networks that may be dialled although the guard refuses them.
    pub allow: &'a [IpNet],
    /// Who resolves.
    pub resolver: &'a dyn Resolve,
}

/// Connects to the first address that the guard lets through and that answers. All together within `limit`.
///
/// # Errors
/// See [`DialError`]; none of them leaves a byte downstream.
pub async fn tcp(target: &Target<'_>, limit: Duration) -> Result<Stream, DialError> {
    let end = Instant::now() + limit;
    let addresses = addresses(target, end, limit).await?;
    let mut last = DialError::TimedOut(limit);
    let count = addresses.len();
    for (i, address) in addresses.into_iter().enumerate() {
        // A silent address gets its share of the time, so that the next one is tried at all.
        let left = end.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(count - i).unwrap_or(u32::MAX);
        match timeout_at(Instant::now() + share, connect(address)).await {
            Ok(Ok(stream)) => return Ok(Stream::Plain(stream)),
            Ok(Err(error)) => last = DialError::Refused { address, why: error.to_string() },
            Err(_elapsed) => last = DialError::TimedOut(limit),
        }
    }
    Err(last)
}

async fn addresses(target: &Target<'_>, end: Instant, limit: Duration) -> Result<Vec<SocketAddr>, DialError> {
    let not_resolved = |why: String| DialError::NotResolved { host: target.host.to_owned(), why };
    let found = match target.host.parse::<IpAddr>() {
        Ok(literal) => vec![SocketAddr::new(literal, target.port)],
        Err(_name) => timeout_at(end, target.resolver.resolve(target.host, target.port))
            .await
            .map_err(|_elapsed| not_resolved(format!("no answer within {}", humantime::format_duration(limit))))?
            .map_err(|error| not_resolved(error.to_string()))?,
    };
    let mut blocked = None;
    let mut passed = Vec::new();
    for address in found {
        match guard::check(address.ip(), target.allow) {
            Ok(()) => passed.push(address),
            Err(why) => blocked = blocked.or(Some(why)),
        }
    }
    match (passed.is_empty(), blocked) {
        (false, _) => Ok(passed),
        (true, Some(why)) => Err(DialError::Blocked(why)),
        (true, None) => Err(not_resolved("no address".to_owned())),
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // From the start: what is not closed in order, also by SIGKILL, must not go on being delivered by the kernel.
    stream.reset_on_close(true)?;
    Ok(stream)
}

/// TLS over a plain connection; a connection that has TLS already is an error. SNI and certificate name are `host`.
///
/// # Errors
/// [`DialError::Tls`].
pub async fn tls(stream: Stream, host: &str, config: Arc<ClientConfig>, limit: Duration) -> Result<Stream, DialError> {
    let failed = |why: String| DialError::Tls { host: host.to_owned(), why };
    let Stream::Plain(tcp) = stream else {
        return Err(failed("the connection has TLS already".to_owned()));
    };
    // An absolute name is written with a dot at its end; certificates and SNI carry it without (RFC 6066, 3).
    let name = ServerName::try_from(host.strip_suffix('.').unwrap_or(host).to_owned())
        .map_err(|_invalid| failed("the name is no valid server name".to_owned()))?;
    let handshake = tokio_rustls::TlsConnector::from(config).connect(name, tcp);
    match tokio::time::timeout(limit, handshake).await {
        Ok(Ok(tls)) => Ok(Stream::Tls(Box::new(tls))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_elapsed) => Err(failed(format!("no handshake within {}", humantime::format_duration(limit)))),
    }
}

/// TLS settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// The file with extra roots.
    #[error("ca_file {path}: {why}")]
    CaFile {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The library refuses the settings.
    #[error("TLS settings: {0}")]
    Library(#[from] rustls::Error),
}

/// Client settings: the system's roots and those of `ca_file`, TLS 1.2 and 1.3, never early data. `alpn` is empty for mail.
///
/// # Errors
/// When `ca_file` cannot be read or holds no certificate.
pub fn tls_config(ca_file: Option<&Path>, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsSetupError> {
    let mut roots = system_roots().clone();
    if let Some(path) = ca_file {
        let bad = |why: String| TlsSetupError::CaFile { path: path.to_owned(), why };
        let mut found = 0;
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| bad(e.to_string()))? {
            roots.add(certificate.map_err(|e| bad(e.to_string()))?).map_err(|e| bad(e.to_string()))?;
            found += 1;
        }
        if found == 0 {
            return Err(bad("holds no certificate".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Read once for the process: it takes milliseconds and does not change while we run.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let loaded = rustls_native_certs::load_native_certs();
        for error in &loaded.errors {
            tracing::warn!(%error, "a system root certificate could not be read");
        }
        let mut roots = RootCertStore::empty();
        let (_added, ignored) = roots.add_parsable_certificates(loaded.certs);
        if roots.is_empty() {
            tracing::warn!(ignored, "no system root certificates: only those of ca_file are trusted");
        }
        roots
    })
}
