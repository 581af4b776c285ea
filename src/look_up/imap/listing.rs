//! Reads the headers of a mailbox from its end backwards, and notices when it did not read everything.
//!
//! Commands: LOGIN, EXAMINE, UID FETCH with BODY.PEEK, LOGOUT; nothing that changes a flag. Every answer is read to its
//! tagged line here: the library's own `examine` and `uid_fetch` take a NO, a BAD and a lost connection for the end of the
//! list, and a list that ends early is how absence gets believed.

use std::{collections::BTreeMap, fmt::Debug, io, time::Duration};

use async_imap::{
    Authenticator, Client, Session,
    imap_proto::{AttributeValue, MailboxDatum, MessageSection, Response, ResponseCode, SectionPath, Status},
};
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use super::{
    capped::{Capped, TOO_MUCH},
    item::{FIELDS, Item},
    settings::Auth,
};

/// Messages asked for at a time, at first.
const WIDTH: u32 = 1000;
/// Most questions about one mailbox.
const MOST_PAGES: u32 = 500;

/// What bounds the reading.
pub struct Bounds {
    /// Messages older than this do not matter.
    pub since: DateTime<Utc>,
    /// Most messages that are read.
    pub max_messages: u32,
    /// For LOGIN and EXAMINE.
    pub command: Duration,
    /// For every FETCH.
    pub fetch: Duration,
}

/// Who reads.
pub struct Login<'a> {
    /// The name.
    pub name: &'a str,
    /// The password.
    pub password: &'a str,
    /// How it is given.
    pub auth: Auth,
    /// The greeting was read before the connection was protected.
    pub greeted: bool,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Listing {
    /// By UID.
    pub items: BTreeMap<u32, Item>,
    /// Why it is not everything since the beginning of the window; `None` when it is.
    pub gap: Option<String>,
    /// UIDVALIDITY; UIDs mean something only together with it.
    pub uid_validity: u32,
    /// FETCH commands.
    pub pages: u32,
    /// SHA-256 over everything that was read of the messages, hex.
    pub digest: String,
    /// The commands as sent, without the password.
    pub query: String,
}

#[derive(Debug, Default)]
struct Mailbox {
    exists: u32,
    uid_next: Option<u32>,
    uid_validity: Option<u32>,
}

/// Logs in and reads.
///
/// # Errors
/// Why nothing can be said.
pub async fn list<S>(stream: S, login: &Login<'_>, mailbox: &str, bounds: &Bounds) -> Result<Listing, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Debug + Send,
{
    // A kilobyte of fields is plenty; what sends more is not read to the end.
    let stream = Capped::new(stream, u64::from(bounds.max_messages) * 8192 + 1_048_576);
    let mut session = within(bounds.command, "LOGIN", log_in(stream, login)).await?;
    let opened = within(bounds.command, "EXAMINE", examine(&mut session, mailbox)).await?;
    let mut reader = Reader { session, hasher: Sha256::new(), listing: Listing::default() };
    reader.listing.uid_validity = opened.uid_validity.ok_or("the mailbox has no UIDVALIDITY")?;
    reader.listing.query = format!(
        "EXAMINE {mailbox:?} (UIDVALIDITY {}, UIDNEXT {}, EXISTS {})",
        reader.listing.uid_validity,
        opened.uid_next.map_or_else(|| "unknown".to_owned(), |next| next.to_string()),
        opened.exists
    );
    if opened.exists > 0 {
        reader.read(&opened, bounds).await?;
    }
    let mut listing = reader.listing;
    listing.digest = hex(&reader.hasher.finalize());
    if listing.gap.is_none() {
        // The answer is complete; whether the server takes leave of us changes nothing.
        let _parting = timeout(Duration::from_secs(2), reader.session.logout()).await;
    }
    Ok(listing)
}

async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match timeout(limit, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(why)) => Err(format!("{what}: {why}")),
        Err(_elapsed) => Err(format!("{what}: no answer within {}", humantime::format_duration(limit))),
    }
}

async fn log_in<S>(stream: S, login: &Login<'_>) -> Result<Session<S>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Debug + Send,
{
    let mut client = Client::new(stream);
    if !login.greeted {
        let greeting =
            client.read_response().await.map_err(|error| unreadable(&error))?.ok_or("closed without greeting")?;
        // PREAUTH would be somebody's account, but not one that we have shown a password for.
        if !matches!(greeting.parsed(), Response::Data { status: Status::Ok, .. }) {
            return Err("the greeting is not OK".to_owned());
        }
    }
    let done = match login.auth {
        Auth::Login => client.login(login.name, login.password).await,
        Auth::Plain => client.authenticate("PLAIN", Plain(Some(format!("\0{}\0{}", login.name, login.password)))).await,
    };
    done.map_err(|(error, _)| refused_words(&error))
}

/// SASL PLAIN: name and password once, whatever the server goes on asking.
struct Plain(Option<String>);

impl Authenticator for Plain {
    type Response = String;

    fn process(&mut self, _challenge: &[u8]) -> String {
        self.0.take().unwrap_or_default()
    }
}

async fn examine<S>(session: &mut Session<S>, mailbox: &str) -> Result<Mailbox, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Debug + Send,
{
    let quoted = mailbox.replace('\\', "\\\\").replace('"', "\\\"");
    let tag = session.run_command(format!("EXAMINE \"{quoted}\"")).await.map_err(|error| refused_words(&error))?;
    let mut opened = Mailbox::default();
    let mut counted = false;
    loop {
        let answer = session.read_response().await.map_err(|error| unreadable(&error))?.ok_or("connection closed")?;
        let answer = answer.parsed();
        if let Response::Done { tag: done, status, .. } = answer
            && *done == tag
        {
            if *status != Status::Ok {
                return Err(format!("answered {status:?}"));
            }
            return if counted { Ok(opened) } else { Err("no EXISTS".to_owned()) };
        }
        if let Response::MailboxData(MailboxDatum::Exists(exists)) = answer {
            opened.exists = *exists;
            counted = true;
        }
        if let Response::Data { status, outcome } = answer {
            if *status != Status::Ok {
                return Err(format!("answered {status:?}"));
            }
            match outcome.code {
                Some(ResponseCode::UidNext(next)) => opened.uid_next = Some(next),
                Some(ResponseCode::UidValidity(validity)) => opened.uid_validity = Some(validity),
                Some(_) | None => {}
            }
        }
    }
}

struct Reader<S: AsyncRead + AsyncWrite + Unpin + Debug> {
    session: Session<S>,
    hasher: Sha256,
    listing: Listing,
}

impl<S> Reader<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Debug + Send,
{
    /// Windows of UIDs from the newest down, until the whole mailbox or everything young enough has been read.
    async fn read(&mut self, opened: &Mailbox, bounds: &Bounds) -> Result<(), String> {
        let small = opened.exists <= bounds.max_messages;
        let mut width = WIDTH;
        // The star reaches what arrived since EXAMINE; a server without UIDNEXT is read whole or not at all.
        let mut low = match opened.uid_next {
            Some(next) => next.saturating_sub(width).max(1),
            None if small => 1,
            None => {
                self.listing.gap = Some("the mailbox is larger than max_messages and has no UIDNEXT".to_owned());
                return Ok(());
            }
        };
        let mut high: Option<u32> = None;
        loop {
            let set = high.map_or_else(|| format!("{low}:*"), |high| format!("{low}:{high}"));
            let page = within(bounds.fetch, "UID FETCH", self.fetch(&set, bounds.max_messages)).await?;
            if self.listing.gap.is_some() {
                return Ok(());
            }
            let all_old = !page.is_empty() && page.iter().all(|at| *at < bounds.since);
            // Only where dates rise with UIDs does an old page mean that nothing young lies before it.
            let done = low == 1 || (!small && all_old && self.dates_rise());
            if done {
                self.listing.gap = self.hole(opened, low == 1);
                return Ok(());
            }
            if self.listing.pages >= MOST_PAGES {
                self.listing.gap = Some(format!("not read to the beginning of the window in {MOST_PAGES} pages"));
                return Ok(());
            }
            if page.len() < WIDTH as usize / 4 {
                width = width.saturating_mul(2);
            }
            let below = low - 1;
            high = Some(below);
            low = below.saturating_sub(width - 1).max(1);
        }
    }

    /// One window; gives the dates of what came.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the server may say at any time what nobody asked for")]
    async fn fetch(&mut self, set: &str, most: u32) -> Result<Vec<DateTime<Utc>>, String> {
        let command = format!("UID FETCH {set} (UID INTERNALDATE BODY.PEEK[HEADER.FIELDS ({FIELDS})])");
        self.listing.query.push_str("; ");
        self.listing.query.push_str(&command);
        self.listing.pages += 1;
        let tag = self.session.run_command(&command).await.map_err(|error| refused_words(&error))?;
        let mut dates = Vec::new();
        loop {
            let answer =
                self.session.read_response().await.map_err(|error| unreadable(&error))?.ok_or("connection closed")?;
            match answer.parsed() {
                Response::Done { tag: done, status, .. } if *done == tag => {
                    return if *status == Status::Ok { Ok(dates) } else { Err(format!("answered {status:?}")) };
                }
                Response::Data { status, .. } if *status != Status::Ok => return Err(format!("answered {status:?}")),
                Response::Data { outcome, .. } if self.is_another(outcome.code.as_ref()) => {
                    return Err("the mailbox was made anew while it was read".to_owned());
                }
                Response::Expunge(_) | Response::Vanished { .. } => {
                    return Err("the mailbox was changed while it was read".to_owned());
                }
                Response::Fetch(seq, attributes) => {
                    if let Some((uid, item)) = self.message(*seq, attributes)? {
                        dates.push(item.at);
                        self.listing.items.insert(uid, item);
                    }
                    if self.listing.items.len() > most as usize {
                        self.listing.gap = Some(format!("the window holds more than {most} messages"));
                        return Ok(dates);
                    }
                }
                // Untagged OK, EXISTS, RECENT, FLAGS and what else a server may say at any time.
                _ => {}
            }
        }
    }

    /// `None` for a report of changed flags, which carries neither headers nor date.
    #[expect(clippy::wildcard_enum_match_arm, reason = "a server may show more than it was asked for")]
    fn message(&mut self, seq: u32, attributes: &[AttributeValue<'_>]) -> Result<Option<(u32, Item)>, String> {
        let (mut uid, mut date, mut fields) = (None, None, None);
        for attribute in attributes {
            match attribute {
                AttributeValue::Uid(this) => uid = Some(*this),
                AttributeValue::InternalDate(text) => date = Some(text.as_ref()),
                AttributeValue::BodySection {
                    section: Some(SectionPath::Full(MessageSection::Header)), data, ..
                } => {
                    fields = Some(data.as_deref().ok_or("a message without headers")?);
                }
                _ => {}
            }
        }
        let (uid, date, fields) = match (uid, date, fields) {
            (Some(uid), Some(date), Some(fields)) => (uid, date, fields),
            (_, None, None) => return Ok(None),
            (None, _, _) | (_, None, Some(_)) | (_, Some(_), None) => {
                return Err("a message without UID, date or headers".to_owned());
            }
        };
        let at = DateTime::parse_from_str(date.trim(), "%d-%b-%Y %H:%M:%S %z")
            .map_err(|_| "a message with an unreadable date".to_owned())?
            .with_timezone(&Utc);
        self.hasher.update(uid.to_be_bytes());
        self.hasher.update((date.len() as u64).to_be_bytes());
        self.hasher.update(date);
        self.hasher.update((fields.len() as u64).to_be_bytes());
        self.hasher.update(fields);
        Ok(Some((uid, Item::read(seq, at, fields)?)))
    }

    /// The server tells another UIDVALIDITY than it had when the mailbox was opened.
    fn is_another(&self, code: Option<&ResponseCode<'_>>) -> bool {
        matches!(code, Some(ResponseCode::UidValidity(validity)) if *validity != self.listing.uid_validity)
    }

    fn dates_rise(&self) -> bool {
        let dates: Vec<_> = self.listing.items.values().map(|item| item.at).collect();
        dates.windows(2).all(|pair| matches!(pair, [earlier, later] if earlier <= later))
    }

    /// Positions are dense: one that is missing is a message that the server did not show.
    fn hole(&self, opened: &Mailbox, whole: bool) -> Option<String> {
        let mut wanted = None;
        for item in self.listing.items.values() {
            if wanted.is_some_and(|wanted| wanted != item.seq) {
                return Some("the server left out a message".to_owned());
            }
            if wanted.is_none() && whole && item.seq != 1 {
                return Some("the server left out the first messages".to_owned());
            }
            wanted = Some(item.seq + 1);
        }
        match wanted {
            Some(next) if next > opened.exists => None,
            Some(_) | None => Some("the server showed fewer messages than the mailbox holds".to_owned()),
        }
    }
}

/// The words for a failed command; a server's text may quote what was sent, so it is not repeated.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list of errors is open")]
fn refused_words(error: &async_imap::error::Error) -> String {
    match error {
        async_imap::error::Error::No(_) => "answered NO".to_owned(),
        async_imap::error::Error::Bad(_) => "answered BAD".to_owned(),
        async_imap::error::Error::ConnectionLost => "connection closed".to_owned(),
        async_imap::error::Error::Io(error) => unreadable(error),
        _ => "cannot be asked".to_owned(),
    }
}

/// The library's parse error quotes what it read, which is mail: only the kind is kept.
fn unreadable(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::Other && error.to_string() != TOO_MUCH {
        "unreadable answer".to_owned()
    } else {
        error.to_string()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
