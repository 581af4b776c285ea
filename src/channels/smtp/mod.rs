//! Mail through a relay: one message to one envelope recipient over one connection (RFC 5321).
//!
//! Built by the registry from a destination; the dispatcher calls [`Smtp`] as a [`Channel`]. `render` makes the bytes,
//! `dialogue` hands them over with `talk`, `classify` says what the end means, `pool` keeps connections for the next mail.
//!
//! Commands are not pipelined (RFC 2920): each reply must be known before the next command, or a refusal could be taken for
//! the answer to another one. Mails are not signed (DKIM): that is the relay's, which has the key of the domain.

mod classify;
mod dialogue;
mod offers;
mod payload;
mod pool;
mod render;
pub mod settings;
mod talk;
mod wire_form;

use std::sync::Arc;

use ipnet::IpNet;
use lettre::{Address, transport::smtp::extension::ClientId};
use rustls::ClientConfig;
use secrecy::SecretString;

use crate::{
    channels::{
        Channel, Prepared, Unsupported, Wire,
        wire::dial::{self, Resolve, SystemResolver},
    },
    config::{
        BuildError,
        destination::{Destination, Timeouts},
    },
    domain::{
        gate::{BoxFuture, Gate},
        intent::Outgoing,
        outcome::{Ended, Outcome, Proof, Report},
    },
};
use settings::Settings;

/// One rendered mail.
pub struct Mail {
    /// Envelope sender.
    pub from: String,
    /// The one envelope recipient.
    pub to: String,
    /// RFC 5322 bytes with CRLF line ends, not yet dot-stuffed.
    pub bytes: Vec<u8>,
}

/// The channel `smtp` of one generation of a destination.
pub struct Smtp {
    settings: Settings,
    sender: Address,
    hello: ClientId,
    credentials: Option<(String, SecretString)>,
    tls: Arc<ClientConfig>,
    allow: Vec<IpNet>,
    timeouts: Timeouts,
    /// Whether attempts are numbered in the mail; not where the relay compares bytes.
    mark: bool,
    resolver: Arc<dyn Resolve>,
    pool: Arc<pool::Pool>,
}

impl Smtp {
    /// From a destination's `[destinations.smtp]`. Secrets are read here.
    ///
    /// # Errors
    /// [`BuildError`] with the setting and the rule.
    pub fn build(destination: &Destination) -> Result<Self, BuildError> {
        let section = destination.smtp.clone().ok_or_else(|| BuildError::new("smtp", "must be given"))?;
        let settings: Settings =
            serde_json::from_value(section).map_err(|error| BuildError::new("smtp", format!("is wrong: {error}")))?;
        settings.check().map_err(|said| {
            let (field, rule) = said.split_once(": ").unwrap_or(("", &said));
            BuildError::new(format!("smtp.{field}"), rule)
        })?;
        let sender = settings.sender().map_err(|rule| BuildError::new("smtp.from", rule))?;
        let credentials = match (&settings.username, &settings.password) {
            (Some(name), Some(password)) => {
                let password = password
                    .load()
                    .map_err(|error| BuildError::new("smtp.password", format!("cannot be read: {error}")))?;
                Some((name.clone(), password))
            }
            (_, None) | (None, Some(_)) => None,
        };
        let tls = dial::tls_config(destination.ca_file.as_deref(), &[])
            .map_err(|error| BuildError::new("ca_file", format!("cannot be used: {error}")))?;
        Ok(Self {
            hello: settings.hello_name.clone().map_or_else(ClientId::default, ClientId::Domain),
            pool: pool::Pool::new(settings.keep_for, settings.keep_uses, destination.limits.concurrency as usize),
            settings,
            sender,
            credentials,
            tls,
            allow: destination.allow_addresses.clone(),
            timeouts: destination.timeouts.clone(),
            mark: destination.replay.is_none(),
            resolver: Arc::new(SystemResolver),
        })
    }

    /// With another resolver than the system's, for tests.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }
}

impl Channel for Smtp {
    fn prepare(&self, outgoing: &Outgoing) -> Result<Prepared, Unsupported> {
        let rendered = render::render(&self.settings, &self.sender, outgoing, self.mark)?;
        Ok(Prepared { digest: rendered.digest, wire: Wire::Mail(rendered.mail) })
    }

    fn send<'a>(&'a self, prepared: Prepared, outgoing: &'a Outgoing, gate: Arc<dyn Gate>) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            match prepared.wire {
                Wire::Mail(mail) => dialogue::run(self, &mail, outgoing, gate).await,
                Wire::Http(_) => Ended {
                    outcome: Outcome::NotSent { proof: Proof::NotStarted, retry_after: None },
                    report: Report::nothing_written("what was prepared is no mail"),
                },
            }
        })
    }
}
