//! A read-only IMAP4rev1 server over the mailbox, enough for mail programs and for look-ups.
//!
//! CAPABILITY, STARTTLS, LOGIN, AUTHENTICATE PLAIN, LIST, STATUS, SELECT and EXAMINE (both read-only), FETCH, SEARCH, both
//! with UID, NOOP, LOGOUT. Every command is recorded, so that a test can see what was asked and that nothing was changed.

mod fetch;
mod search;
mod session;
mod token;

use std::{
    io,
    sync::{Arc, Mutex},
};

use super::{
    door::Door,
    faults::Faults,
    locked,
    mailbox::Mailbox,
    tls::{Certificate, Security},
    wire::Wire,
};

/// What SEARCH knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Index {
    /// Everything.
    #[default]
    Whole,
    /// The usual header fields; for any other it answers OK and nothing, as a full-text index does that was never told of it.
    UsualHeaders,
    /// Nothing: OK, and no results.
    Empty,
}

/// What the server asks for.
#[derive(Clone)]
pub struct Options {
    /// Port; 0 is any free one.
    pub port: u16,
    /// TLS.
    pub security: Security,
    /// Used by TLS.
    pub certificate: Option<Certificate>,
    /// User and password.
    pub login: (String, String),
    /// Name of the only folder.
    pub folder: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            security: Security::Plain,
            certificate: None,
            login: ("audit".into(), "audit".into()),
            folder: "INBOX".into(),
        }
    }
}

/// The server behind its door.
pub struct Imap {
    server: Arc<Server>,
    door: Door,
}

struct Server {
    options: Options,
    mailbox: Arc<Mailbox>,
    faults: Faults,
    index: Mutex<Index>,
    commands: Mutex<Vec<String>>,
}

impl Imap {
    /// A server without TLS on a free loopback port; user and password are `audit`, the folder is INBOX.
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
        let server = Arc::new(Server {
            options,
            mailbox,
            faults: Faults::default(),
            index: Mutex::default(),
            commands: Mutex::default(),
        });
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

    /// The mailbox that is shown.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.server.mailbox
    }

    /// Faults: `Stage::Connect` the greeting, `Stage::Auth` the log-in, `Stage::Act` opening the folder, FETCH and SEARCH.
    /// `faults().for_reference("FETCH", …)` names one of EXAMINE (also for SELECT), FETCH, SEARCH.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// What SEARCH knows.
    pub fn set_index(&self, index: Index) {
        *locked(&self.server.index) = index;
    }

    /// Every command so far, without tags and passwords.
    pub fn commands(&self) -> Vec<String> {
        locked(&self.server.commands).clone()
    }

    /// Refuses, accepts, cuts connections.
    pub fn door(&self) -> &Door {
        &self.door
    }
}
