//! A mail server: takes mail and puts it into the mailbox, with faults at every stage of the conversation.
//!
//! Speaks RFC 5321 with SIZE, 8BITMIME, ENHANCEDSTATUSCODES, and as configured DSN, STARTTLS, AUTH PLAIN and LOGIN.

mod session;

use std::{io, sync::Arc};

use super::{
    door::Door,
    faults::Faults,
    mailbox::Mailbox,
    tls::{Certificate, Security},
    wire::Wire,
};

/// What the server offers and asks for.
#[derive(Clone, Default)]
pub struct Options {
    /// Port; 0 is any free one.
    pub port: u16,
    /// TLS.
    pub security: Security,
    /// Used by TLS.
    pub certificate: Option<Certificate>,
    /// User and password; asked for before MAIL.
    pub login: Option<(String, String)>,
    /// Does not offer DSN.
    pub without_dsn: bool,
}

/// The server behind its door.
pub struct Smtp {
    server: Arc<Server>,
    door: Door,
}

pub(super) struct Server {
    options: Options,
    faults: Faults,
    mailbox: Arc<Mailbox>,
}

impl Smtp {
    /// A server without TLS and log-in on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(mailbox: Arc<Mailbox>) -> io::Result<Self> {
        Self::start_with(mailbox, Options::default()).await
    }

    /// A server as described.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn start_with(mailbox: Arc<Mailbox>, options: Options) -> io::Result<Self> {
        let port = options.port;
        let server = Arc::new(Server { options, faults: Faults::default(), mailbox });
        let shared = Arc::clone(&server);
        let serve = Arc::new(move |stream| -> crate::domain::gate::BoxFuture<'static, ()> {
            let server = Arc::clone(&shared);
            Box::pin(async move {
                // A client that goes away ends its conversation, nothing else.
                let _ = session::Session::new(&server, Wire::new(stream)).run().await;
            })
        });
        Ok(Self { server, door: Door::open_at(port, serve).await? })
    }

    /// Port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.door.address().port()
    }

    /// What was accepted.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.server.mailbox
    }

    /// Faults; [`super::faults::Stage`] says where. To act means: the mail is accepted.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Refuses, accepts, cuts connections.
    pub fn door(&self) -> &Door {
        &self.door
    }
}
