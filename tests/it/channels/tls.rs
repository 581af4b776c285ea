//! A downstream behind TLS that answers every request with an empty 200 and remembers it.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::fake::requests;

/// What one connection read, and whether the peer said goodbye in TLS.
pub struct Taken {
    pub bytes: Vec<u8>,
    pub goodbye: bool,
}

/// A running server.
pub struct TlsFake {
    pub address: SocketAddr,
    /// Its certificate, as a CA file.
    pub ca: tempfile::NamedTempFile,
    /// Connections that have ended.
    pub taken: mpsc::UnboundedReceiver<Taken>,
}

impl TlsFake {
    /// With a certificate for `name`, valid until the beginning of `year`.
    pub async fn start(name: &str, year: i32) -> Self {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let pair = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&pair).unwrap();
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&ca, cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(pair.serialize_der().into());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, taken) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, tell) = (acceptor.clone(), tell.clone());
                tokio::spawn(async move {
                    let Ok(mut tls) = acceptor.accept(tcp).await else {
                        let _closed = tell.send(Taken { bytes: Vec::new(), goodbye: false });
                        return;
                    };
                    let mut bytes = Vec::new();
                    let mut buffer = vec![0; 16 * 1024];
                    let mut answered = 0;
                    let goodbye = loop {
                        // Without a close_notify, rustls makes the end of the stream an error.
                        match tls.read(&mut buffer).await {
                            Ok(0) => break answered > 0,
                            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
                            Err(_cut) => break false,
                        }
                        while answered < requests(&bytes) {
                            tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                            tls.flush().await.unwrap();
                            answered += 1;
                        }
                    };
                    let _closed = tell.send(Taken { bytes, goodbye });
                });
            }
        });
        Self { address, ca, taken }
    }
}
