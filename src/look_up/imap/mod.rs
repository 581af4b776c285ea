//! Asks an audit mailbox: a copy of every mail lands there (BCC by the relay), and its headers carry our key.
//!
//! Built by the registry from a destination, called by the reconciler as a [`LookUp`]. One listing of the window answers
//! for the subject and all its controls, so they are read from one and the same answer. It only reads; what it cannot read
//! to the end it does not judge.

mod capped;
mod guard;
pub(in crate::look_up) mod item;
mod listing;
mod mailbox;
pub mod settings;
mod starttls;

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use ipnet::IpNet;
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};

use super::{LookUp, several};
use crate::{
    channels::wire::{
        AlwaysOpen,
        counted::Counted,
        dial::{self, Resolve, SystemResolver},
    },
    config::{
        BuildError,
        destination::{Destination, Timeouts},
    },
    domain::{
        gate::BoxFuture,
        question::{Abilities, AccountSeen, Answer, Marked, Probe, Question, Role, Seen},
    },
};
use listing::{Bounds, Listing, Login};
use settings::{Settings, Tls};

/// The look-up `imap` of one generation of a destination.
pub struct Imap {
    settings: Settings,
    password: SecretString,
    /// Its name as it goes on the wire.
    mailbox: String,
    /// The UIDVALIDITY of the last reading.
    last_validity: Mutex<Option<u32>>,
    tls: Arc<ClientConfig>,
    allow: Vec<IpNet>,
    timeouts: Timeouts,
    resolver: Arc<dyn Resolve>,
}

impl Imap {
    /// From a destination's `[destinations.look_up.imap]`. The password is read here.
    ///
    /// # Errors
    /// [`BuildError`] with the setting and the rule.
    pub fn build(destination: &Destination) -> Result<Self, BuildError> {
        let section = destination
            .look_up
            .as_ref()
            .and_then(|look_up| look_up.imap.clone())
            .ok_or_else(|| BuildError::new("look_up.imap", "must be given"))?;
        let settings: Settings = serde_json::from_value(section)
            .map_err(|error| BuildError::new("look_up.imap", format!("is wrong: {error}")))?;
        settings.check().map_err(|(field, rule)| BuildError::new(format!("look_up.imap.{field}"), rule))?;
        let mailbox =
            mailbox::on_the_wire(&settings.mailbox).map_err(|rule| BuildError::new("look_up.imap.mailbox", rule))?;
        let password = settings
            .password
            .load()
            .map_err(|error| BuildError::new("look_up.imap.password", format!("cannot be read: {error}")))?;
        let tls = dial::tls_config(destination.ca_file.as_deref(), &[])
            .map_err(|error| BuildError::new("ca_file", format!("cannot be used: {error}")))?;
        Ok(Self {
            settings,
            password,
            mailbox,
            last_validity: Mutex::new(None),
            tls,
            allow: destination.allow_addresses.clone(),
            timeouts: destination.timeouts.clone(),
            resolver: Arc::new(SystemResolver),
        })
    }

    /// With another resolver than the system's, for tests.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    async fn list(&self, question: &Question) -> Result<Listing, String> {
        let oldest = question.probes.iter().map(|probe| probe.sent_from).min().unwrap_or(question.now);
        let slack = chrono::Duration::from_std(self.settings.slack).unwrap_or_default();
        let bounds = Bounds {
            since: oldest.checked_sub_signed(slack).unwrap_or(oldest),
            max_messages: self.settings.max_messages,
            command: self.timeouts.command,
            fetch: self.timeouts.body,
        };
        let target = dial::Target {
            host: &self.settings.host,
            port: self.settings.port(),
            allow: &self.allow,
            resolver: self.resolver.as_ref(),
        };
        let mut stream = dial::tcp(&target, self.timeouts.connect).await.map_err(|error| error.to_string())?;
        let (host, config) = (&self.settings.host, Arc::clone(&self.tls));
        match self.settings.tls {
            Tls::Implicit => {
                stream = dial::tls(stream, host, config, self.timeouts.tls).await.map_err(|error| error.to_string())?;
            }
            Tls::Starttls => {
                let limits = starttls::Limits { command: self.timeouts.command, tls: self.timeouts.tls };
                stream = starttls::upgrade(stream, host, config, &limits).await?;
            }
            Tls::None => {}
        }
        let stream = Counted::new(stream, Arc::new(AlwaysOpen));
        stream.counter().close_in_order();
        let login = Login {
            name: &self.settings.username,
            password: self.password.expose_secret(),
            auth: self.settings.auth,
            greeted: self.settings.tls == Tls::Starttls,
        };
        let mut listing = listing::list(stream, &login, &self.mailbox, &bounds).await?;
        if let Some(why) = self.made_anew(listing.uid_validity) {
            listing.gap = Some(why);
        }
        Ok(listing)
    }

    /// UIDs of another UIDVALIDITY are another mailbox: what was in the one that is meant may be gone (RFC 3501 2.3.1.1).
    fn made_anew(&self, now: u32) -> Option<String> {
        let last = self.last_validity.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        let wanted = self.settings.uid_validity.or(last)?;
        (wanted != now).then(|| format!("the mailbox was made anew: its UIDVALIDITY is {now}, and was {wanted}"))
    }

    /// Only asked after LOGIN was accepted.
    fn account(&self) -> AccountSeen {
        let identity = self.settings.identity();
        match &self.settings.account {
            None => AccountSeen::NotChecked,
            Some(wanted) if *wanted == identity => AccountSeen::Matches { identity },
            Some(_) => AccountSeen::Differs { seen: identity },
        }
    }
}

impl LookUp for Imap {
    fn abilities(&self) -> Abilities {
        Abilities { shows_key: true, lists: true }
    }

    fn marked(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> BoxFuture<'_, Option<Marked>> {
        Box::pin(async move {
            let probe = Probe {
                role: Role::Impossible,
                key: String::new(),
                reference: String::new(),
                spelled: None,
                occurrence: 1,
                recipient: String::new(),
                sent_from: from,
                sent_until: until,
            };
            let Ok(listing) = self.list(&Question { probes: vec![probe], now: until }).await else {
                return Some(Marked { items: Vec::new(), calls: 1 });
            };
            let named = |(uid, item): (&u32, &item::Item)| item.marked(format!("{}/{uid}", listing.uid_validity));
            Some(Marked { items: listing.items.iter().filter_map(named).collect(), calls: listing.pages.max(1) })
        })
    }

    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            match self.list(question).await {
                Ok(listing) => {
                    let items =
                        || listing.items.iter().map(|(uid, item)| (format!("{}/{uid}", listing.uid_validity), item));
                    Answer {
                        seen: question
                            .probes
                            .iter()
                            .map(|probe| item::judge(probe, items(), listing.gap.as_deref()))
                            .collect(),
                        same_answer: true,
                        account: self.account(),
                        pages: listing.pages,
                        digest: listing.digest.clone(),
                        query: listing.query.clone(),
                        retry_after: None,
                    }
                }
                Err(why) => Answer {
                    seen: question.probes.iter().map(|_| Seen::CannotTell { why: why.clone() }).collect(),
                    same_answer: false,
                    account: AccountSeen::NotChecked,
                    pages: 0,
                    digest: String::new(),
                    query: format!("EXAMINE {:?}", self.mailbox),
                    retry_after: None,
                },
            }
        })
    }

    fn ask_many<'a>(&'a self, questions: &'a [Question]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let Some(whole) = several::whole(questions) else { return Vec::new() };
            several::apart(&self.ask(&whole).await, questions)
        })
    }
}
