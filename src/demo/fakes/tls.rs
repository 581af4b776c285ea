//! A certificate authority of the fake's own, made anew at every start.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

/// Whether and when a mail server speaks TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Security {
    /// Never.
    #[default]
    Plain,
    /// After STARTTLS, which it offers.
    StartTls,
    /// From the first byte.
    Implicit,
}

/// What a server shows, and what a client must trust.
#[derive(Clone)]
pub struct Certificate {
    /// PEM of the authority: the client's root.
    pub authority_pem: String,
    acceptor: TlsAcceptor,
}

/// The certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// By the generator.
    #[error("make a certificate: {0}")]
    Made(#[from] rcgen::Error),
    /// By the TLS library.
    #[error("use the made certificate: {0}")]
    Used(#[from] rustls::Error),
}

impl Certificate {
    /// A certificate for `localhost` and 127.0.0.1.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn new() -> Result<Self, CertificateError> {
        Self::for_names(&["localhost", "127.0.0.1"])
    }

    /// A certificate for these names, for tests of a wrong name.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn for_names(names: &[&str]) -> Result<Self, CertificateError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "settled demo authority");
        let authority_key = KeyPair::generate()?;
        let authority = params.self_signed(&authority_key)?;
        let issuer = Issuer::new(params, authority_key);

        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "settled demo server");
        let key = KeyPair::generate()?;
        let server = params.signed_by(&key, &issuer)?;

        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![server.der().clone()], key)?;
        Ok(Self { authority_pem: authority.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}
