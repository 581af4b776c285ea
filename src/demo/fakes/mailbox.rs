//! The audit mailbox: what the fake mail server has accepted, as an IMAP client sees it.
//!
//! Filled by [`super::smtp`], read by [`super::imap`]. A mail gets its UID when it becomes visible, not when it was
//! accepted: with a lag, UIDs come in the order of arrival in the mailbox, as RFC 3501 2.3.1.1 asks.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, Utc};
use mailparse::MailHeaderMap;

use super::{
    ledger_of_effects::{Arrived, Effect, Effects},
    locked,
};

/// The envelope of a mail (RFC 5321).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Reverse path, without brackets.
    pub from: String,
    /// Forward paths.
    pub to: Vec<String>,
    /// DSN ENVID (RFC 3461), decoded from xtext.
    pub envid: Option<String>,
}

/// An accepted mail.
#[derive(Debug, Clone)]
pub struct Mail {
    /// Ids of its effects, one for each recipient.
    pub effects: Vec<String>,
    /// The envelope.
    pub envelope: Envelope,
    /// The message, CRLF line ends, without transparency dots.
    pub raw: Arc<Vec<u8>>,
}

/// A mail as IMAP shows it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its UID.
    pub uid: u32,
    /// When it came to the mailbox.
    pub internal_date: DateTime<Utc>,
    /// The message.
    pub raw: Arc<Vec<u8>>,
}

struct Inner {
    mails: Vec<Mail>,
    stored: Vec<Stored>,
    /// Positions in `mails` that have reached the mailbox, or were dropped at its door.
    arrived: HashSet<usize>,
    next_uid: u32,
    uid_validity: u32,
    drops_repeated_message_ids: bool,
}

/// The mailbox and the ledger of the mail server.
pub struct Mailbox {
    effects: Arc<Effects>,
    inner: Mutex<Inner>,
}

impl Default for Mailbox {
    fn default() -> Self {
        let inner = Inner {
            mails: Vec::new(),
            stored: Vec::new(),
            arrived: HashSet::new(),
            next_uid: 1,
            uid_validity: 1_700_000_000,
            drops_repeated_message_ids: false,
        };
        Self { effects: Arc::new(Effects::new("ML")), inner: Mutex::new(inner) }
    }
}

impl Mailbox {
    /// Every mail that was accepted is an effect, whether it shows in the mailbox or not.
    pub fn effects(&self) -> &Arc<Effects> {
        &self.effects
    }

    /// Accepts a mail, for each recipient of its envelope.
    pub fn deliver(&self, envelope: Envelope, raw: Vec<u8>) -> Mail {
        let marks = Marks::read(&raw, envelope.envid.as_deref());
        let effects = envelope.to.iter().map(|to| self.effects.record(marks.arrived(to, &raw)).id).collect();
        let mail = Mail { effects, envelope, raw: Arc::new(raw) };
        locked(&self.inner).mails.push(mail.clone());
        mail
    }

    /// Everything accepted so far, in order.
    pub fn mails(&self) -> Vec<Mail> {
        locked(&self.inner).mails.clone()
    }

    /// What IMAP shows now, by UID.
    pub fn stored(&self) -> Vec<Stored> {
        let visible = self.effects.visible();
        let mut inner = locked(&self.inner);
        let inner = &mut *inner;
        for (effect, since) in &visible {
            inner.take_in(effect, *since);
        }
        inner.stored.clone()
    }

    /// Removes a mail from the mailbox; the effect stays.
    pub fn expunge(&self, uid: u32) {
        locked(&self.inner).stored.retain(|mail| mail.uid != uid);
    }

    /// Makes every UID that a client has remembered worthless (RFC 3501 2.3.1.1).
    pub fn renumber(&self) {
        let mut inner = locked(&self.inner);
        inner.uid_validity += 1;
        inner.next_uid = 1;
        let inner = &mut *inner;
        for mail in &mut inner.stored {
            mail.uid = inner.next_uid;
            inner.next_uid += 1;
        }
    }

    /// From now on a second mail with a Message-ID already in the mailbox does not show, as Cyrus does by default.
    pub fn drop_repeated_message_ids(&self, drop: bool) {
        locked(&self.inner).drops_repeated_message_ids = drop;
    }

    pub(super) fn uid_validity(&self) -> u32 {
        locked(&self.inner).uid_validity
    }

    pub(super) fn next_uid(&self) -> u32 {
        locked(&self.inner).next_uid
    }
}

impl Inner {
    fn take_in(&mut self, effect: &Effect, since: DateTime<Utc>) {
        // A mail to several recipients shows once, with the first of its effects.
        let Some(at) = self.mails.iter().position(|mail| mail.effects.first() == Some(&effect.id)) else { return };
        if !self.arrived.insert(at) {
            return;
        }
        let Some(raw) = self.mails.get(at).map(|mail| Arc::clone(&mail.raw)) else { return };
        let id = header(&raw, "message-id");
        if self.drops_repeated_message_ids
            && id.is_some()
            && self.stored.iter().any(|mail| header(&mail.raw, "message-id") == id)
        {
            return;
        }
        self.stored.push(Stored { uid: self.next_uid, internal_date: since, raw });
        self.next_uid += 1;
    }
}

/// A header's unfolded value.
pub(super) fn header(raw: &[u8], name: &str) -> Option<String> {
    let (headers, _) = mailparse::parse_headers(raw).ok()?;
    headers.get_first_value(name).map(|value| value.trim().to_owned())
}

/// What a mail carries of ours.
pub(super) struct Marks {
    pub(super) key: Option<String>,
    pub(super) reference: Option<String>,
    occurrence: i32,
    attempt: Option<i32>,
}

impl Marks {
    pub(super) fn read(raw: &[u8], envid: Option<&str>) -> Self {
        let message_id = || {
            let id = header(raw, "message-id")?;
            let (local, _) = id.trim_start_matches('<').trim_end_matches('>').split_once('@')?;
            Some(local.to_owned())
        };
        let number = |name| header(raw, name).and_then(|n| n.parse().ok());
        Self {
            key: header(raw, "x-settled-key").or_else(message_id).or_else(|| envid.map(str::to_owned)),
            reference: header(raw, "x-settled-reference"),
            occurrence: number("x-settled-occurrence").unwrap_or(1),
            attempt: number("x-settled-attempt"),
        }
    }

    fn arrived(&self, to: &str, raw: &[u8]) -> Arrived {
        Arrived {
            key: self.key.clone(),
            reference: self.reference.clone().unwrap_or_default(),
            occurrence: self.occurrence,
            recipient: to.to_owned(),
            attempt: self.attempt,
            content: header(raw, "subject").unwrap_or_default(),
        }
    }
}
