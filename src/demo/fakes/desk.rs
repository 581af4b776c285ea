//! The part of an HTTP downstream that can be asked: lists with windows and pages, single items, the account.
//!
//! Sees only what is visible. Its bad habits (filters that match too much, pages that never end or are cut off) are
//! settings, its failures are faults.

use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{
    faults::{Ending, Faults, Stage, Subject, play},
    http::{Request, Response},
    ledger_of_effects::{Effect, Effects},
    locked,
};

/// How a list is cut into pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    /// Every page names the next one until the end.
    Honest,
    /// The last page names itself as the next one.
    Endless,
    /// Only the first page, and no word about more.
    CutOff,
}

/// What a filter on the reference lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Equal in every letter.
    Exact,
    /// Equal but for upper and lower case.
    Folded,
    /// Everything that begins so: INV-229 also gives INV-2291.
    Prefix,
    /// The filter is not known here and changes nothing.
    Ignored,
}

struct Settings {
    account: String,
    page_size: usize,
    paging: Paging,
    matching: Matching,
}

/// Which words a downstream uses.
pub struct Vocabulary {
    /// Path of the list.
    pub path: &'static str,
    /// Member of the answer that holds the items.
    pub items: &'static str,
    /// Query member that filters by reference.
    pub reference: &'static str,
    /// The value which that member is compared with.
    pub named: fn(&Effect) -> &str,
    /// An effect as this downstream shows it.
    pub item: fn(&Effect) -> Value,
}

/// Answers questions about the effects of one downstream.
pub struct Desk {
    /// Faults of questions, apart from those of sends.
    pub faults: Faults,
    effects: Arc<Effects>,
    words: Vocabulary,
    settings: Mutex<Settings>,
    asked: Mutex<Vec<String>>,
}

impl Desk {
    pub(super) fn new(effects: Arc<Effects>, account: &str, words: Vocabulary) -> Self {
        let settings =
            Settings { account: account.to_owned(), page_size: 100, paging: Paging::Honest, matching: Matching::Exact };
        Self {
            faults: Faults::default(),
            effects,
            words,
            settings: Mutex::new(settings),
            asked: Mutex::new(Vec::new()),
        }
    }

    /// Another account answers from now on.
    pub fn set_account(&self, account: &str) {
        account.clone_into(&mut locked(&self.settings).account);
    }

    /// Items a page.
    pub fn set_page_size(&self, items: usize) {
        locked(&self.settings).page_size = items.max(1);
    }

    /// How lists are cut.
    pub fn set_paging(&self, paging: Paging) {
        locked(&self.settings).paging = paging;
    }

    /// What the filter on the reference lets through.
    pub fn set_matching(&self, matching: Matching) {
        locked(&self.settings).matching = matching;
    }

    /// Every question so far, path and query, in order.
    pub fn asked(&self) -> Vec<String> {
        locked(&self.asked).clone()
    }

    pub(super) async fn handle(&self, request: &Request) -> Ending<Response> {
        locked(&self.asked).push(spelled(request));
        let reference = request.query(self.words.reference);
        let fault = self.faults.take(Subject { stage: Stage::Act, reference, key: request.query("key") });
        play(fault, || self.answer(request), Response::instead).await
    }

    fn answer(&self, request: &Request) -> Response {
        if request.path == "/account" {
            return Response::json(200, &json!({"account": locked(&self.settings).account}));
        }
        if request.path == self.words.path {
            return self.list(request);
        }
        let name = request.path.strip_prefix(self.words.path).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name else { return not_found() };
        let visible = self.effects.visible();
        let mut same = visible.iter().filter(|(e, _)| e.key.as_deref() == Some(name) || e.id == name).peekable();
        if same.peek().is_none() {
            return not_found();
        }
        let items: Vec<Value> = same.map(|(effect, _)| (self.words.item)(effect)).collect();
        match items.as_slice() {
            [only] => Response::json(200, only),
            // As Salesforce does for an external id that several records carry.
            _ => Response::json(300, &json!({self.words.items: items})),
        }
    }

    fn list(&self, request: &Request) -> Response {
        let (size, paging, matching) = {
            let settings = locked(&self.settings);
            (settings.page_size, settings.paging, settings.matching)
        };
        let (from, to) = match (time(request, "from"), time(request, "to")) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(bad), _) | (_, Err(bad)) => return Response::json(400, &json!({"error": bad})),
        };
        let wanted = request.query(self.words.reference);
        let (key, recipient) = (request.query("key"), request.query("recipient"));
        let fits = |effect: &Effect| {
            let reference = wanted.is_none_or(|wanted| match matching {
                Matching::Exact => (self.words.named)(effect) == wanted,
                Matching::Folded => (self.words.named)(effect).eq_ignore_ascii_case(wanted),
                Matching::Prefix => (self.words.named)(effect).starts_with(wanted),
                Matching::Ignored => true,
            });
            reference
                && key.is_none_or(|key| effect.key.as_deref() == Some(key))
                && recipient.is_none_or(|to| effect.recipient == to)
                && from.is_none_or(|from| effect.at >= from)
                && to.is_none_or(|to| effect.at <= to)
        };
        let all: Vec<Value> =
            self.effects.visible().iter().filter(|(e, _)| fits(e)).map(|(e, _)| (self.words.item)(e)).collect();
        let start = request.query("cursor").and_then(|c| c.parse().ok()).unwrap_or(0_usize);
        let page: Vec<&Value> = all.iter().skip(start).take(size).collect();
        let more = start + page.len() < all.len();
        let next = match paging {
            Paging::Honest => more.then_some(start + size),
            Paging::Endless => Some(if more { start + size } else { start }),
            Paging::CutOff => None,
        };
        let next = next.map(|cursor| continued(request, cursor));
        Response::json(200, &json!({self.words.items: page, "next": next, "has_more": next.is_some()}))
    }
}

fn not_found() -> Response {
    Response::json(404, &json!({"error": "not found"}))
}

/// RFC 3339 or Unix seconds.
fn time(request: &Request, name: &str) -> Result<Option<DateTime<Utc>>, String> {
    let Some(text) = request.query(name) else { return Ok(None) };
    if let Ok(seconds) = text.parse::<i64>() {
        return DateTime::from_timestamp(seconds, 0).map(Some).ok_or_else(|| format!("{name}: out of range"));
    }
    match DateTime::parse_from_rfc3339(text) {
        Ok(at) => Ok(Some(at.to_utc())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The same question with another cursor, as a relative link.
fn continued(request: &Request, cursor: usize) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in request.query.iter().filter(|(name, _)| name != "cursor") {
        query.append_pair(name, value);
    }
    query.append_pair("cursor", &cursor.to_string());
    format!("{}?{}", request.path, query.finish())
}

fn spelled(request: &Request) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(&request.query);
    let query = query.finish();
    if query.is_empty() { request.path.clone() } else { format!("{}?{query}", request.path) }
}
