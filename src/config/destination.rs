//! One configured downstream. Published to the database as its definition; old generations are built from there again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{canary::Canary, compensate::Compensate, sightings::Sightings};
use crate::domain::intent::{ChannelKind, InDoubt};

/// A `[[destinations]]` entry. Channel sections stay raw here; each adapter parses its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Immutable name, `[a-z0-9._-]`.
    pub name: String,
    /// How it is spoken to.
    pub channel: ChannelKind,
    /// Name under which effects are unique; default the own name. Destinations that reach the same people share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect_scope: Option<String>,
    /// What holds in doubt. No default where it can neither refuse a repeat nor be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
    /// Why `harmless` is true, or why a rule is relaxed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The counter-action, where `in_doubt = "compensate"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Compensate>,
    /// What a second effect costs, in words for the person who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_twice: Option<String>,
    /// What a missing effect costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_never: Option<String>,
    /// Whether a person must approve first.
    #[serde(default)]
    pub approval: Approval,
    /// Narrows the reference, a regular expression over the lower-case form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_pattern: Option<String>,
    /// What the canonical form must know about the payload.
    #[serde(default)]
    pub canonical: Canonical,
    /// Numbers that bound sending.
    #[serde(default)]
    pub limits: Limits,
    /// A limit for every phase of a conversation.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// The downstream keeps keys: same key, same bytes give the first answer again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Addresses that may be dialled although they are private (CIDR).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_addresses: Vec<ipnet::IpNet>,
    /// PEM file with extra roots for TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<std::path::PathBuf>,
    /// `channel = "webhook"`; parsed by `channels::webhook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<serde_json::Value>,
    /// `channel = "smtp"`; parsed by `channels::smtp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smtp: Option<serde_json::Value>,
    /// `channel = "sms"`; parsed by `channels::sms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms: Option<serde_json::Value>,
    /// How it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_up: Option<LookUp>,
    /// What it reports by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sightings: Option<Sightings>,
    /// What `settled verify` sends here. Not published: no daemon needs it.
    #[serde(default, skip_serializing)]
    pub canary: Option<Canary>,
}

/// Approval policy. Comparisons over amount and recipient come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Nobody is asked.
    #[default]
    Never,
    /// Every intent is held until a person approves.
    Always,
}

/// Declarations that make two spellings one meaning. JSON pointers into the payload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Canonical {
    /// Amounts of money: compared in minor units together with their currency.
    pub money: Vec<Money>,
    /// Timestamps: compared in UTC.
    pub times: Vec<String>,
    /// Arrays whose order and repetitions mean nothing.
    pub sets: Vec<String>,
    /// Left out of the fingerprint.
    pub volatile: Vec<String>,
    /// Pointer to a value that is meant where the member is missing.
    pub defaults: serde_json::Map<String, serde_json::Value>,
}

/// One declared amount.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Money {
    /// Pointer to the amount: a number, or a string such as "40,000.00".
    pub at: String,
    /// Pointer to the currency, or a fixed ISO 4217 code.
    pub currency: String,
}

/// Numbers that bound sending to one destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Sends at the same time, per daemon.
    pub concurrency: u32,
    /// Attempts that began a conversation, before `attempts_exhausted`.
    pub attempts: u32,
    /// Added to the worst send time to make the lease.
    #[serde(with = "humantime_serde")]
    pub lease_margin: Duration,
    /// First back-off.
    #[serde(with = "humantime_serde")]
    pub backoff: Duration,
    /// Largest back-off, and the largest Retry-After that is obeyed.
    #[serde(with = "humantime_serde")]
    pub backoff_max: Duration,
    /// Ambiguous or unreachable attempts in a row that open the breaker.
    pub breaker_after: u32,
    /// How long the breaker stays open before one attempt is let through.
    #[serde(with = "humantime_serde")]
    pub breaker_open: Duration,
    /// Open unknowns at which no new send begins; sends under way count as well once it is near.
    pub open_unknowns: u32,
    /// How fast sends may begin, for all daemons together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// How long nothing gets through before people are told.
    #[serde(with = "humantime_serde")]
    pub unreachable_after: Duration,
    /// Largest answer that is read, decompressed.
    pub answer_bytes: usize,
    /// Webhook: how long a connection waits idle for the next request; zero: each request gets its own. Not given: four
    /// seconds where doubt can be asked about, else zero, since a server that closes as a request is written leaves a doubt.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub keep_idle: Option<Duration>,
    /// From this age on a connection is not reused, so that addresses are resolved and checked anew.
    #[serde(with = "humantime_serde")]
    pub keep_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 16,
            attempts: 5,
            lease_margin: Duration::from_secs(10),
            backoff: Duration::from_secs(5),
            backoff_max: Duration::from_secs(3600),
            breaker_after: 10,
            breaker_open: Duration::from_secs(30),
            open_unknowns: 1000,
            rate: None,
            unreachable_after: Duration::from_secs(900),
            answer_bytes: 64 * 1024,
            keep_idle: None,
            keep_age: Duration::from_secs(60),
        }
    }
}

/// `[destinations.limits.rate]`: exactly one of `per_second` and `per_minute`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Sends that may begin in a second; fractions are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The same in a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<f64>,
    /// Sends that may begin at once after a pause; default what a second brings, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl Rate {
    /// Sends a second.
    pub fn a_second(&self) -> f64 {
        self.per_second.or_else(|| self.per_minute.map(|n| n / 60.0)).unwrap_or(f64::MAX)
    }

    /// Sends that may begin at once.
    pub fn burst(&self) -> f64 {
        self.burst.map_or_else(|| self.a_second().max(1.0), f64::from)
    }
}

/// A limit for every phase. The sum is the worst send time; the lease must be longer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Resolve and dial.
    #[serde(with = "humantime_serde")]
    pub connect: Duration,
    /// TLS handshake.
    #[serde(with = "humantime_serde")]
    pub tls: Duration,
    /// Each SMTP command before the message: greeting, EHLO, AUTH, MAIL, RCPT, DATA.
    #[serde(with = "humantime_serde")]
    pub command: Duration,
    /// Handing over request or message.
    #[serde(with = "humantime_serde")]
    pub body: Duration,
    /// HTTP: from the last byte to the response head.
    #[serde(with = "humantime_serde")]
    pub reply: Duration,
    /// HTTP: reading the response body; running out changes nothing about the outcome.
    #[serde(with = "humantime_serde")]
    pub answer: Duration,
    /// SMTP: from the final dot to its reply. RFC 5321 4.5.3.2.6 asks for ten minutes.
    #[serde(with = "humantime_serde")]
    pub final_dot: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            tls: Duration::from_secs(10),
            command: Duration::from_secs(60),
            body: Duration::from_secs(60),
            reply: Duration::from_secs(30),
            answer: Duration::from_secs(5),
            final_dot: Duration::from_secs(600),
        }
    }
}

impl Destination {
    /// The scope under which effects are unique.
    pub fn scope(&self) -> &str {
        self.effect_scope.as_deref().unwrap_or(&self.name)
    }

    /// It keeps our keys, or can be asked what it has.
    pub fn can_be_asked(&self) -> bool {
        self.replay.is_some() || self.look_up.is_some()
    }

    /// How long a connection may wait idle for the next request; zero: each request gets its own.
    pub fn keep_idle(&self) -> Duration {
        let asked = if self.can_be_asked() { Duration::from_secs(4) } else { Duration::ZERO };
        self.limits.keep_idle.unwrap_or(asked)
    }

    /// What holds in doubt: as configured, else asking. Loading refuses a destination that states nothing and cannot be asked.
    pub fn doubt_policy(&self) -> InDoubt {
        self.in_doubt.unwrap_or(if self.can_be_asked() { InDoubt::Ask } else { InDoubt::Person })
    }

    /// The longest that one attempt can take until its reply is given up.
    pub fn worst_send_time(&self) -> Duration {
        let t = &self.timeouts;
        match self.channel {
            ChannelKind::Webhook | ChannelKind::Sms => t.connect + t.tls + t.body + t.reply,
            // Greeting, EHLO, STARTTLS, EHLO, AUTH (3), MAIL, RCPT, DATA share `command` each, but one total up to the dot.
            ChannelKind::Smtp => t.connect + t.tls + t.command * 3 + t.body + t.final_dot,
        }
    }

    /// Worst send time and margin; never renewed.
    pub fn lease(&self) -> Duration {
        self.worst_send_time() + self.limits.lease_margin
    }
}

/// `[destinations.replay]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// How long the downstream keeps a key after the first attempt.
    #[serde(with = "humantime_serde")]
    pub key_lifetime: Duration,
    /// Kept free before the end of that time.
    #[serde(with = "humantime_serde", default = "five_minutes")]
    pub margin: Duration,
}

fn five_minutes() -> Duration {
    Duration::from_secs(300)
}

/// `[destinations.look_up]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookUp {
    /// Which adapter.
    pub kind: LookUpKind,
    /// Everything between our last byte and visibility: accept queue, proxies, relay queues, index. No default.
    #[serde(with = "humantime_serde")]
    pub lag: Duration,
    /// How long after the send it can still be asked. After that nothing is proven.
    #[serde(with = "humantime_serde")]
    pub horizon: Duration,
    /// Equal answers that make an absence.
    #[serde(default = "two")]
    pub need: u32,
    /// Between those answers.
    #[serde(with = "humantime_serde", default = "thirty_seconds")]
    pub spacing: Duration,
    /// Whether things become visible in the order they were accepted.
    #[serde(default)]
    pub visibility: Visibility,
    /// What an absence without an ordered bracket may do.
    #[serde(default)]
    pub absent_by_lag: AbsentByLag,
    /// Calls that all daemons together may make, per minute: pages, controls and account checks each count.
    #[serde(default = "sixty")]
    pub per_minute: u32,
    /// Questions about one intent before a person is asked.
    #[serde(default = "twenty")]
    pub questions: u32,
    /// Ordinary sends that are asked about although nobody doubts them.
    #[serde(default)]
    pub audit: Audit,
    /// `kind = "http"`; parsed by `look_up::http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<serde_json::Value>,
    /// `kind = "imap"`; parsed by `look_up::imap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imap: Option<serde_json::Value>,
    /// `kind = "command"`; parsed by `look_up::command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<serde_json::Value>,
}

fn two() -> u32 {
    2
}
fn twenty() -> u32 {
    20
}
fn sixty() -> u32 {
    60
}
fn thirty_seconds() -> Duration {
    Duration::from_secs(30)
}

/// `[destinations.look_up.audit]`: the sample that measures the lag and looks for what is missing or there twice. Intents
/// with a second attempt are asked about in any case.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Share of ordinary sends, 0 to 1.
    pub share: f64,
    /// Most of them in a minute, all daemons together.
    pub per_minute: u32,
}

impl Default for Audit {
    fn default() -> Self {
        Self { share: 0.01, per_minute: 6 }
    }
}

/// Look-up adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookUpKind {
    /// Declarative questions over HTTP.
    Http,
    /// An audit mailbox.
    Imap,
    /// A program that is run.
    Command,
}

/// Declared, or it is no evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// A younger one may show before an elder.
    #[default]
    Unordered,
    /// What was accepted earlier is visible earlier.
    Ordered,
}

/// What an absence by the lag alone may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsentByLag {
    /// A person decides.
    #[default]
    Person,
    /// It may be sent again.
    Resend,
}
