//! Idle connections of one destination, kept for its next request.
//!
//! Made with the [`super::Options`] of one channel, so nothing is shared between destinations, generations, or sending and
//! asking. What must hold: what lies here is a bare stream without a counter or gate, which nobody can write to; it is
//! kept only after a whole answer, and given out only while it is young, silent, for the same place by the same TLS
//! settings, and at an address that the guard still lets through.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use http::{HeaderMap, StatusCode, Version, header, response::Parts};
use ipnet::IpNet;
use rustls::ClientConfig;
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    channels::wire::{
        counted::{Socket, Stream},
        guard,
    },
    config::destination::Destination,
};

/// For the goodbye of an idle connection.
const GOODBYE: Duration = Duration::from_millis(100);

/// Taken off what a server says it will keep: its clock began to run before ours.
const SERVER_MARGIN: Duration = Duration::from_secs(1);

/// Where a connection leads to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) tls: Option<&'a Arc<ClientConfig>>,
}

/// A connection in use, with what decides whether it may be kept afterwards.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) stream: Stream,
    pub(super) born: Instant,
    /// It has carried an exchange before.
    pub(super) used: bool,
}

#[derive(Debug)]
struct Idle {
    lent: Lent,
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    until: Instant,
}

impl Idle {
    fn is_at(&self, place: Place<'_>) -> bool {
        let same_tls = match (&self.tls, place.tls) {
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_tls && self.host == place.host && self.port == place.port
    }
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<Idle>,
    swept: bool,
}

/// The idle connections of one channel.
#[derive(Debug)]
pub struct Keep {
    idle: Duration,
    age: Duration,
    most: usize,
    kept: Mutex<Kept>,
}

impl Keep {
    /// As a destination declares; `None` where each request gets a connection of its own.
    pub fn of(destination: &Destination) -> Option<Arc<Self>> {
        let idle = destination.keep_idle();
        (!idle.is_zero())
            .then(|| Arc::new(Self::new(idle, destination.limits.keep_age, destination.limits.concurrency as usize)))
    }

    /// At most `most` connections, each idle for at most `idle` and never reused once older than `age`.
    pub fn new(idle: Duration, age: Duration, most: usize) -> Self {
        Self { idle, age, most, kept: Mutex::default() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The youngest idle connection to `place` that can be trusted; what cannot is closed.
    pub(super) fn take(&self, place: Place<'_>, allow: &[IpNet]) -> Option<Lent> {
        loop {
            let mut found = self.with(|kept| {
                let at = kept.idle.iter().rposition(|idle| idle.is_at(place))?;
                Some(kept.idle.remove(at))
            })?;
            let now = Instant::now();
            let fine = found.until > now
                && found.lent.stream.peer().is_ok_and(|peer| guard::check(peer.ip(), allow).is_ok())
                && found.lent.stream.is_silent()
                // From here on what is not closed in order is thrown away again.
                && found.lent.stream.reset_on_close(true).is_ok();
            if fine {
                return Some(found.lent);
            }
        }
    }

    /// Keeps a connection whose exchange went well, if the answer allows it and it is still silent. False: it was closed.
    pub(super) fn give(self: &Arc<Self>, mut lent: Lent, place: Place<'_>, allowed: Duration) -> bool {
        // Everything that was sent on it has been answered: from now on it closes in order, however it ends.
        let orderly = lent.stream.reset_on_close(false).is_ok();
        let now = Instant::now();
        let until = (now + self.idle.min(allowed)).min(lent.born + self.age);
        if !orderly || until <= now || !lent.stream.is_silent() {
            return false;
        }
        let (host, tls) = (place.host.to_owned(), place.tls.cloned());
        let idle = Idle { lent, host, port: place.port, tls, until };
        let (kept, sweep) = self.with(|kept| {
            if kept.idle.len() >= self.most {
                return (false, false);
            }
            kept.idle.push(idle);
            (true, !std::mem::replace(&mut kept.swept, true))
        });
        if sweep {
            tokio::spawn(sweep_until_empty(Arc::downgrade(self)));
        }
        kept
    }

    /// Takes out what has been idle too long, and says when to look again; `None` when nothing is left.
    fn expired(&self) -> (Vec<Idle>, Option<Instant>) {
        let now = Instant::now();
        self.with(|kept| {
            let (expired, left) = std::mem::take(&mut kept.idle).into_iter().partition(|idle: &Idle| idle.until <= now);
            kept.idle = left;
            let next = kept.idle.iter().map(|idle| idle.until).min();
            kept.swept = next.is_some();
            (expired, next)
        })
    }
}

/// Closes idle connections in time, also when no request comes any more. Ends with the last of them.
async fn sweep_until_empty(keep: Weak<Keep>) {
    loop {
        let Some((expired, next)) = keep.upgrade().map(|keep| keep.expired()) else { return };
        for mut idle in expired {
            // A peer that has gone already does not mind.
            let _gone = timeout(GOODBYE, idle.lent.stream.shutdown()).await;
        }
        let Some(next) = next else { return };
        sleep_until(next).await;
    }
}

/// How long a server allows its connection to be kept after this answer; `None`: not at all. The answer's end must have been
/// declared, by one means alone.
pub(super) fn allowed(head: &Parts) -> Option<Duration> {
    let says = |name, word: &str| tokens(&head.headers, name).any(|token| token.eq_ignore_ascii_case(word));
    if head.version != Version::HTTP_11
        || head.status == StatusCode::SWITCHING_PROTOCOLS
        || says(header::CONNECTION, "close")
    {
        return None;
    }
    let lengths = head.headers.get_all(header::CONTENT_LENGTH).iter().count();
    let coded = head.headers.contains_key(header::TRANSFER_ENCODING);
    let bodiless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framed = match (lengths, coded) {
        (1, false) => true,
        (0, true) => says(header::TRANSFER_ENCODING, "chunked"),
        (0, false) => bodiless,
        (_, _) => false,
    };
    if !framed {
        return None;
    }
    let mut allowed = Duration::MAX;
    for token in tokens(&head.headers, header::HeaderName::from_static("keep-alive")) {
        let Some((name, value)) = token.split_once('=') else { continue };
        let Ok(value) = value.trim().trim_matches('"').parse::<u64>() else { return None };
        match name.trim() {
            name if name.eq_ignore_ascii_case("timeout") => {
                allowed = allowed.min(Duration::from_secs(value).saturating_sub(SERVER_MARGIN));
            }
            name if name.eq_ignore_ascii_case("max") && value == 0 => return None,
            _other => {}
        }
    }
    // Longer than any idle time that can be configured; kept small so that adding it to a clock cannot overflow.
    Some(allowed.min(Duration::from_secs(3600)))
}

fn tokens(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .into_iter()
        // What cannot be read as text is kept as a word that nobody knows.
        .flat_map(|value| value.to_str().unwrap_or("=").split(','))
        .map(str::trim)
}
