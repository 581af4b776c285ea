//! `[destinations.look_up.http]`, as written. What must hold between the fields is checked in `plan`.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use super::{checks, oauth};
use crate::config::access::{Auth, Setting};

/// The section.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// What one request asks about.
    pub per: Per,
    /// GET, HEAD or POST.
    #[serde(default)]
    pub method: Method,
    /// Absolute; variables in path and query.
    pub url: String,
    /// Appended to the URL. Values are templates, or secrets.
    #[serde(default)]
    pub query: BTreeMap<String, Setting>,
    /// Sent with every request.
    #[serde(default)]
    pub headers: BTreeMap<String, Setting>,
    /// Sent with every request.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// A token that is fetched first; instead of `auth`.
    #[serde(default)]
    pub oauth: Option<oauth::Setting>,
    /// Body of a POST; variables inside its strings.
    #[serde(default)]
    pub json: Option<Value>,
    /// Added to both ends of the window: skew of clocks and coarse formats (a day for `%Y-%m-%d`).
    #[serde(with = "humantime_serde", default = "five_minutes")]
    pub widen: Duration,
    /// For all requests of one question together.
    #[serde(with = "humantime_serde", default = "one_minute")]
    pub within: Duration,
    /// Largest page, decompressed.
    #[serde(default = "four_mebibytes")]
    pub page_bytes: usize,
    /// How the answer is read.
    #[serde(default)]
    pub answer: Answer,
    /// How more pages are asked for.
    #[serde(default)]
    pub pages: Pages,
    /// How the downstream says who we are.
    #[serde(default)]
    pub account: Option<Account>,
}

/// What one request asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Per {
    /// One intent; every control is a request of its own.
    Key,
    /// All that the downstream got in a window; one listing answers for the intent and all controls.
    Window,
}

/// Methods that ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Method {
    /// The default.
    #[default]
    Get,
    /// Only where the key or reference is in the path.
    Head,
    /// For APIs whose query is a body.
    Post,
}

/// How an answer is read. Pointers are RFC 6901; those that end in `_at` are relative to an item.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Answer {
    /// Statuses whose body is read.
    pub ok: Vec<u16>,
    /// Statuses that say "not here", where the path names the intent.
    pub absent: Vec<u16>,
    /// Statuses that say "several", where the path names the intent.
    pub many: Vec<u16>,
    /// What must stand in every body that is read.
    #[serde(rename = "assert")]
    pub asserted: BTreeMap<String, Value>,
    /// Where the items are: an array, or one object. Empty: the whole body.
    pub items: String,
    /// Where an item carries our key.
    pub key_at: Option<String>,
    /// Where it carries the business reference.
    pub reference_at: Option<String>,
    /// Where it carries the occurrence.
    pub occurrence_at: Option<String>,
    /// Where it carries the recipient.
    pub recipient_at: Option<String>,
    /// Where it carries the number of the attempt.
    pub attempt_at: Option<String>,
    /// The downstream's own name for it.
    pub id_at: Option<String>,
    /// When the downstream got it.
    pub time_at: Option<String>,
    /// How it writes that time, `FORMAT@ZONE`; without it RFC 3339, RFC 2822, or seconds or milliseconds since 1970.
    pub time_format: Option<String>,
    /// The downstream's word for its state.
    pub status_at: Option<String>,
    /// What else an item must say.
    pub checks: Vec<checks::Setting>,
    /// How key and reference are compared.
    #[serde(rename = "match")]
    pub matching: Match,
    /// The downstream finds a reference whatever its case. Without this an empty answer to a question by `{reference}` that
    /// has letters is no answer where the spelling that travelled is not known.
    pub folds_case: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            ok: vec![200],
            absent: Vec::new(),
            many: Vec::new(),
            asserted: BTreeMap::new(),
            items: String::new(),
            key_at: None,
            reference_at: None,
            occurrence_at: None,
            recipient_at: None,
            attempt_at: None,
            id_at: None,
            time_at: None,
            time_format: None,
            status_at: None,
            checks: Vec::new(),
            matching: Match::Eq,
            folds_case: false,
        }
    }
}

/// How a key or reference is compared with what an item carries. ASCII case never counts: the ledger folds references, some
/// downstreams fold what they store, and two keys that differ in case alone do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Match {
    /// The whole value.
    #[default]
    #[serde(alias = "eq_ci")]
    Eq,
    /// Somewhere in the value, not next to one of `[A-Za-z0-9_-]`.
    Token,
    /// At the beginning of the value, as a word.
    Prefix,
    /// At the end of the value, as a word.
    Suffix,
    /// The value is a whole mail or its header: `X-Settled-Key`, `X-Settled-Reference` and Message-ID in it, unfolded.
    Header,
}

/// How more pages are asked for; at most one of the ways. What says that the end was reached may stand beside it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pages {
    /// Pointer to the link to the next page; relative ones are resolved, another origin is refused.
    pub next_at: Option<String>,
    /// The header Link says where the next page is (RFC 8288).
    pub link_header: bool,
    /// A cursor from the answer into the next request.
    pub cursor: Option<Cursor>,
    /// Counts items; reading ends at an empty page.
    pub offset: Option<Counter>,
    /// Counts pages; reading ends at an empty page.
    pub page: Option<Counter>,
    /// Pointer to true where more follows, and false at the end.
    pub more_at: Option<String>,
    /// Pointer to the number of all items; the list has ended when so many were read, and not before.
    pub total_at: Option<String>,
    /// Pages that are read at most.
    pub max: u32,
    /// Items of a full page; one without a next page is incomplete.
    pub full_page: Option<usize>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            next_at: None,
            link_header: false,
            cursor: None,
            offset: None,
            page: None,
            more_at: None,
            total_at: None,
            max: 10,
            full_page: None,
        }
    }
}

/// A cursor.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cursor {
    /// Pointer to it in the body of the answer.
    #[serde(default)]
    pub at: Option<String>,
    /// Or pointer to it in the last item of the page.
    #[serde(default)]
    pub last_at: Option<String>,
    /// Query parameter that carries it.
    #[serde(default)]
    pub query: Option<String>,
    /// Or pointer to its place in the body of a POST.
    #[serde(default)]
    pub body: Option<String>,
}

/// A number that we count, and where it goes. A text alone names a query parameter.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "CounterForm")]
pub(super) struct Counter {
    /// Query parameter that carries it.
    pub query: Option<String>,
    /// Or pointer to its place in the body of a POST.
    pub body: Option<String>,
    /// The number of the first page, which is asked for without it.
    pub first: u64,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "the name of a query parameter, or { query or body, first }")]
enum CounterForm {
    Query(String),
    Whole(CounterWhole),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CounterWhole {
    query: Option<String>,
    body: Option<String>,
    #[serde(default = "one")]
    first: u64,
}

impl From<CounterForm> for Counter {
    fn from(form: CounterForm) -> Self {
        match form {
            CounterForm::Query(query) => Self { query: Some(query), body: None, first: one() },
            CounterForm::Whole(CounterWhole { query, body, first }) => Self { query, body, first },
        }
    }
}

fn one() -> u64 {
    1
}

/// The account check.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Account {
    /// Absolute, without variables; asked with the same headers and credentials.
    pub url: String,
    /// Body of a POST, without variables; else it is asked with GET.
    #[serde(default)]
    pub json: Option<Value>,
    /// Pointers and what must stand there.
    pub expect: BTreeMap<String, Value>,
}

fn five_minutes() -> Duration {
    Duration::from_secs(300)
}
fn one_minute() -> Duration {
    Duration::from_secs(60)
}
fn four_mebibytes() -> usize {
    4 << 20
}
