//! From settings to a plan: everything that can be refused is refused here, with the field and the rule.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderName, HeaderValue, header};
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::{
    checks::Check,
    oauth::Oauth,
    settings::{Answer, Counter, Match, Method, Pages, Per, Settings},
};
use crate::{
    config::{
        BuildError,
        access::{Setting, headers, load},
        template::{JsonTemplate, Template, UrlTemplate},
    },
    look_up::{
        template::{Asked, Spelling},
        window::TimeFormat,
    },
};

/// Path of the section, for errors.
const SECTION: &str = "look_up.http";

/// A checked definition.
pub(super) struct Plan {
    pub per: Per,
    pub method: http::Method,
    pub url: UrlTemplate<Asked>,
    pub query: Vec<(String, QueryValue)>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub json: Option<JsonTemplate<Asked>>,
    pub widen: Duration,
    pub within: Duration,
    pub page_bytes: usize,
    pub answer: Answer,
    /// How times of items are written, where it is declared.
    pub time: Option<TimeFormat>,
    pub checks: Vec<Check>,
    pub pages: Pages,
    pub account: Option<Account>,
    pub oauth: Option<Oauth>,
    /// A request names the reference by the spelling that travelled.
    pub asks_as_given: bool,
    /// What the path names.
    pub named: Named,
    /// Everything that a request names.
    pub asks: Named,
}

/// A query value.
pub(super) enum QueryValue {
    Template(Template<Asked>),
    /// Shown as `***` in evidence.
    Secret(SecretString),
}

/// The account check.
pub(super) struct Account {
    pub url: Url,
    pub json: Option<Value>,
    pub expect: BTreeMap<String, Value>,
}

/// Which names of an intent a request, or its path, carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Named {
    pub key: bool,
    pub reference: bool,
}

impl Named {
    fn of<'a>(variables: impl Iterator<Item = &'a Asked>) -> Self {
        variables.fold(Self::default(), |named, asked| Self {
            key: named.key || asked == &Asked::Key,
            reference: named.reference || matches!(asked, Asked::Reference(_)),
        })
    }

    /// At least one of them.
    pub fn any(self) -> bool {
        self.key || self.reference
    }
}

fn fail<T>(field: &str, rule: &str) -> Result<T, BuildError> {
    Err(BuildError::new(format!("{SECTION}.{field}"), rule))
}

impl Plan {
    /// Checks the section.
    pub fn build(section: &Value) -> Result<Self, BuildError> {
        let settings: Settings =
            serde_json::from_value(section.clone()).map_err(|error| BuildError::unread(SECTION, &error))?;
        let url = UrlTemplate::parse(&settings.url, &format!("{SECTION}.url"))?;
        let mut query = Vec::new();
        for (name, setting) in &settings.query {
            let field = format!("{SECTION}.query.{name}");
            let value = match setting {
                Setting::Plain(text) => QueryValue::Template(Template::parse(text, &field)?),
                Setting::Secret(secret) => QueryValue::Secret(load(secret, &field)?),
            };
            query.push((name.clone(), value));
        }
        let json =
            settings.json.as_ref().map(|json| JsonTemplate::parse(json, &format!("{SECTION}.json"))).transpose()?;
        let mut all_headers = headers(settings.auth.as_ref(), &settings.headers, SECTION)?;
        if !all_headers.iter().any(|(name, _)| name == header::ACCEPT) {
            all_headers.push((header::ACCEPT, HeaderValue::from_static("application/json")));
        }
        let named = Named::of(url.path_variables());
        let variables: Vec<&Asked> = url
            .variables()
            .chain(query.iter().flat_map(|(_, value)| match value {
                QueryValue::Template(template) => template.variables().collect(),
                QueryValue::Secret(_) => Vec::new(),
            }))
            .chain(json.iter().flat_map(JsonTemplate::variables))
            .collect();
        let asks = Named::of(variables.iter().copied());
        let asks_as_given = variables.contains(&&Asked::Reference(Spelling::Given));
        check_scope(&settings, named, &variables)?;
        check_answer(&settings.answer, settings.per, named)?;
        check_pages(&settings, named)?;
        if settings.json.is_some() && settings.method != Method::Post {
            return fail("json", "needs method = \"POST\"");
        }
        if !(1024..=64 << 20).contains(&settings.page_bytes) {
            return fail("page_bytes", "must be between 1024 and 67108864");
        }
        check_places(&settings, json.as_ref())?;
        let (time, checks) = beside(&settings.answer)?;
        let oauth =
            settings.oauth.as_ref().map(|setting| Oauth::build(setting, &format!("{SECTION}.oauth"))).transpose()?;
        if oauth.is_some() && settings.auth.is_some() {
            return fail("oauth", "must not stand beside auth: one of them lets us in");
        }
        if settings.within.is_zero() {
            return fail("within", "must be longer than nothing");
        }
        let account = settings.account.map(account).transpose()?;
        Ok(Self {
            per: settings.per,
            method: match settings.method {
                Method::Get => http::Method::GET,
                Method::Head => http::Method::HEAD,
                Method::Post => http::Method::POST,
            },
            url,
            query,
            headers: all_headers,
            json,
            widen: settings.widen,
            within: settings.within,
            page_bytes: settings.page_bytes,
            answer: settings.answer,
            time,
            checks,
            pages: settings.pages,
            account,
            oauth,
            asks_as_given,
            named,
            asks,
        })
    }
}

/// What one request asks about must fit what it names.
fn check_scope(settings: &Settings, named: Named, variables: &[&Asked]) -> Result<(), BuildError> {
    let answer = &settings.answer;
    match settings.per {
        Per::Window => {
            if variables.iter().any(|asked| !asked.is_window()) {
                return fail("per", "= \"window\" lists everything, so only {from:…} and {until:…} may be asked with");
            }
            if answer.key_at.is_none() && answer.reference_at.is_none() {
                return fail("answer.key_at", "or answer.reference_at must say where an item carries our name");
            }
        }
        Per::Key => {
            if !variables.iter().any(|asked| asked.names_one() || **asked == Asked::Recipient) {
                return fail("per", "= \"key\" needs {key}, {reference} or {recipient} in the request");
            }
            if answer.key_at.is_none() && answer.reference_at.is_none() && !named.any() {
                // A filter that the server does not know returns everything.
                return fail(
                    "answer.key_at",
                    "or answer.reference_at is needed, since only a name in the path needs no comparison",
                );
            }
        }
    }
    if settings.method == Method::Head && !(settings.per == Per::Key && named.any()) {
        return fail("method", "= \"HEAD\" needs {key} or {reference} in the path");
    }
    Ok(())
}

fn check_answer(answer: &Answer, per: Per, named: Named) -> Result<(), BuildError> {
    if answer.ok.is_empty() || answer.ok.iter().any(|status| !(200..300).contains(status)) {
        return fail("answer.ok", "must list 2xx statuses, at least one");
    }
    for (field, list) in [("answer.absent", &answer.absent), ("answer.many", &answer.many)] {
        if !list.is_empty() && (per != Per::Key || !named.any()) {
            return fail(field, "is for a name in the path; a listing says it by its items");
        }
        if list.iter().any(|status| answer.ok.contains(status)) {
            return fail(field, "must not repeat a status of answer.ok");
        }
    }
    if answer.absent.iter().any(|status| ![204, 404, 410].contains(status)) {
        return fail("answer.absent", "may hold 204, 404 and 410; other statuses do not say that it is not there");
    }
    if answer.many.iter().any(|status| *status != 300) {
        return fail("answer.many", "may hold 300 only");
    }
    let pointers = [
        ("answer.items", Some(&answer.items)),
        ("answer.key_at", answer.key_at.as_ref()),
        ("answer.reference_at", answer.reference_at.as_ref()),
        ("answer.occurrence_at", answer.occurrence_at.as_ref()),
        ("answer.recipient_at", answer.recipient_at.as_ref()),
        ("answer.attempt_at", answer.attempt_at.as_ref()),
        ("answer.id_at", answer.id_at.as_ref()),
        ("answer.time_at", answer.time_at.as_ref()),
        ("answer.status_at", answer.status_at.as_ref()),
    ];
    for (field, pointer) in pointers {
        check_pointer(field, pointer)?;
    }
    for pointer in answer.asserted.keys() {
        check_pointer("answer.assert", Some(pointer))?;
    }
    Ok(())
}

fn check_pages(settings: &Settings, named: Named) -> Result<(), BuildError> {
    let pages = &settings.pages;
    let ways = [
        pages.next_at.is_some(),
        pages.link_header,
        pages.cursor.is_some(),
        pages.offset.is_some(),
        pages.page.is_some(),
    ];
    let ways = ways.iter().filter(|way| **way).count();
    if ways > 1 {
        return fail("pages", "may name one of next_at, link_header, cursor, offset and page");
    }
    if pages.more_at.is_some() && pages.total_at.is_some() {
        return fail("pages.total_at", "must not stand beside more_at: one of them says where the end is");
    }
    let ends = pages.more_at.is_some() || pages.total_at.is_some();
    if pages.cursor.as_ref().is_some_and(|cursor| cursor.last_at.is_some()) && !ends {
        return fail(
            "pages.cursor.last_at",
            "needs more_at or total_at: the name of an item does not say whether more follow",
        );
    }
    if !(1..=1000).contains(&pages.max) {
        return fail("pages.max", "must be between 1 and 1000");
    }
    if pages.full_page == Some(0) {
        return fail("pages.full_page", "must be at least 1");
    }
    if ways == 0 && pages.full_page.is_none() && !ends && !(settings.per == Per::Key && named.any()) {
        return fail(
            "pages",
            "must say how more pages are asked for, or how many items a full page has; half a list proves nothing",
        );
    }
    check_pointer("pages.next_at", pages.next_at.as_ref())?;
    check_pointer("pages.more_at", pages.more_at.as_ref())?;
    check_pointer("pages.total_at", pages.total_at.as_ref())?;
    check_pointer("pages.cursor.at", pages.cursor.as_ref().and_then(|cursor| cursor.at.as_ref()))?;
    check_pointer("pages.cursor.last_at", pages.cursor.as_ref().and_then(|cursor| cursor.last_at.as_ref()))
}

/// Where cursors and counters go must be there.
fn check_places(settings: &Settings, json: Option<&JsonTemplate<Asked>>) -> Result<(), BuildError> {
    let pages = &settings.pages;
    let place = |field: &str, query: Option<&String>, body: Option<&String>| match (query, body) {
        (Some(_), None) => Ok(()),
        (None, Some(at)) if json.is_some_and(|json| json.at(at).is_some()) => Ok(()),
        (None, Some(_)) => fail(&format!("{field}.body"), "must point to something in json, which is replaced"),
        (Some(_), Some(_)) | (None, None) => fail(field, "must say one of query and body"),
    };
    if let Some(cursor) = &pages.cursor {
        if cursor.at.is_some() == cursor.last_at.is_some() {
            return fail("pages.cursor", "must say one of at and last_at");
        }
        place("pages.cursor", cursor.query.as_ref(), cursor.body.as_ref())?;
    }
    let counters: [(&str, Option<&Counter>); 2] =
        [("pages.offset", pages.offset.as_ref()), ("pages.page", pages.page.as_ref())];
    for (field, counter) in counters {
        if let Some(counter) = counter {
            place(field, counter.query.as_ref(), counter.body.as_ref())?;
        }
    }
    Ok(())
}

/// What is read of an item beside its names.
fn beside(answer: &Answer) -> Result<(Option<TimeFormat>, Vec<Check>), BuildError> {
    let time = answer
        .time_format
        .as_ref()
        .map(|text| {
            TimeFormat::parse(text).map_err(|rule| BuildError::new(format!("{SECTION}.answer.time_format"), rule))
        })
        .transpose()?;
    if time.is_some() && answer.time_at.is_none() {
        return fail("answer.time_format", "needs time_at");
    }
    if answer.matching == Match::Header && answer.key_at.is_none() {
        return fail("answer.match", "= \"header\" needs key_at, where the text of the mail or its header stands");
    }
    let mut checks = Vec::new();
    for (at, setting) in answer.checks.iter().enumerate() {
        checks.push(Check::build(setting, &format!("{SECTION}.answer.checks[{at}]"))?);
    }
    Ok((time, checks))
}

fn check_pointer(field: &str, pointer: Option<&String>) -> Result<(), BuildError> {
    match pointer {
        Some(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
            fail(field, "must be a JSON pointer: empty, or starting with /")
        }
        Some(_) | None => Ok(()),
    }
}

fn account(settings: super::settings::Account) -> Result<Account, BuildError> {
    let field = format!("{SECTION}.account.url");
    let template = UrlTemplate::<Asked>::parse(&settings.url, &field)?;
    if template.variables().next().is_some() {
        return fail("account.url", "must have no variables");
    }
    let url = Url::parse(&settings.url).map_err(|error| BuildError::new(field, format!("must be a url: {error}")))?;
    if settings.expect.is_empty() {
        return fail("account.expect", "must name at least one pointer and its value");
    }
    for pointer in settings.expect.keys() {
        check_pointer("account.expect", Some(pointer))?;
    }
    Ok(Account { url, json: settings.json, expect: settings.expect })
}
