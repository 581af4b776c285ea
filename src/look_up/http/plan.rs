//! From settings to a plan: everything that can be refused is refused here, with the field and the rule.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderName, HeaderValue, header};
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::settings::{Answer, Method, Pages, Per, Settings};
use crate::{
    config::{
        BuildError,
        access::{Setting, headers, load},
        template::{JsonTemplate, Template, UrlTemplate},
    },
    look_up::template::Asked,
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
    pub pages: Pages,
    pub account: Option<Account>,
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
            reference: named.reference || asked == &Asked::Reference,
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
        if json.is_some() {
            all_headers.push((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
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
        check_scope(&settings, named, &variables)?;
        check_answer(&settings.answer, settings.per, named)?;
        check_pages(&settings, named)?;
        if settings.json.is_some() && settings.method != Method::Post {
            return fail("json", "needs method = \"POST\"");
        }
        if !(1024..=64 << 20).contains(&settings.page_bytes) {
            return fail("page_bytes", "must be between 1024 and 67108864");
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
            pages: settings.pages,
            account,
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
    let ways =
        [pages.next_at.is_some(), pages.cursor.is_some(), pages.offset.is_some()].iter().filter(|way| **way).count();
    if ways > 1 {
        return fail("pages", "may name one of next_at, cursor and offset");
    }
    if !(1..=1000).contains(&pages.max) {
        return fail("pages.max", "must be between 1 and 1000");
    }
    if pages.full_page == Some(0) {
        return fail("pages.full_page", "must be at least 1");
    }
    if ways == 0 && pages.full_page.is_none() && !(settings.per == Per::Key && named.any()) {
        return fail(
            "pages",
            "must say how more pages are asked for, or how many items a full page has; half a list proves nothing",
        );
    }
    check_pointer("pages.next_at", pages.next_at.as_ref())?;
    check_pointer("pages.cursor.at", pages.cursor.as_ref().map(|cursor| &cursor.at))
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
    Ok(Account { url, expect: settings.expect })
}
