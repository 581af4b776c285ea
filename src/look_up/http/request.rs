//! One request of a question, and what may be read of its reply. Everything odd is words, never an error.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderValue, header};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{
    Http,
    paging::Place,
    plan::{Plan, QueryValue},
    reading::Evidence,
};
use crate::{
    channels::{
        classify::{Unit, retry_after},
        wire::{
            AlwaysOpen,
            http1::{self, Reply, Request},
        },
    },
    config::template::{Encode, Refused, percent},
    look_up::template::{Asked, Values},
};

/// Longest query that is kept as evidence, characters.
const KEPT: usize = 2000;

/// What may be read of a reply.
pub(super) struct Page {
    pub status: u16,
    /// `None` where the method or the status has no body.
    pub body: Option<Value>,
    pub raw: Vec<u8>,
    /// Headers Link, as they came.
    pub links: Vec<String>,
}

/// The first request of a list.
pub(super) fn render(plan: &Plan, values: &Values<'_>) -> Result<Place, Refused> {
    let value = |asked: &Asked| asked.value(values);
    let mut url = plan.url.render(&value)?;
    for (name, setting) in &plan.query {
        match setting {
            QueryValue::Template(template) => {
                append(&mut url, name, &template.render(Encode::Verbatim, &value)?);
            }
            QueryValue::Secret(secret) => append(&mut url, name, secret.expose_secret()),
        }
    }
    let json = plan.json.as_ref().map(|template| template.render(&value)).transpose()?;
    Ok(Place { url, json })
}

/// The same for the journal: without secrets, and without whom it went to.
pub(super) fn evidence(plan: &Plan, values: &Values<'_>) -> String {
    let value = |asked: &Asked| asked.evidence(values);
    let shown = || -> Result<String, Refused> {
        let mut url = plan.url.render(&value)?;
        for (name, setting) in &plan.query {
            match setting {
                QueryValue::Template(template) => {
                    append(&mut url, name, &template.render(Encode::Verbatim, &value)?);
                }
                QueryValue::Secret(_) => append(&mut url, name, "***"),
            }
        }
        let body = match &plan.json {
            Some(template) => format!(" {}", template.render(&value)?),
            None => String::new(),
        };
        Ok(format!("{} {url}{body}", plan.method))
    };
    shown().unwrap_or_else(|refused| format!("not asked: {refused}")).chars().take(KEPT).collect()
}

/// Appends `name=value` to the query, both percent-encoded.
fn append(url: &mut Url, name: &str, value: &str) {
    let pair = format!("{}={}", percent(name), percent(value));
    let query = match url.query().filter(|query| !query.is_empty()) {
        Some(query) => format!("{query}&{pair}"),
        None => pair,
    };
    url.set_query(Some(&query));
}

/// Sets a query parameter, in place of any of that name.
pub(super) fn set(url: &mut Url, name: &str, value: &str) {
    let others: Vec<String> = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| {
            let before = pair.split('=').next().unwrap_or_default();
            !pair.is_empty() && percent_encoding::percent_decode_str(before).decode_utf8_lossy() != name
        })
        .map(str::to_owned)
        .collect();
    url.set_query((!others.is_empty()).then(|| others.join("&")).as_deref());
    append(url, name, value);
}

impl Http {
    /// Asks once. `readable` are the statuses whose body is read.
    pub(super) async fn fetch(
        &self,
        method: &http::Method,
        place: &Place,
        readable: &[u16],
        end: Instant,
        evidence: &mut Evidence,
    ) -> Result<Page, String> {
        let mut headers = self.plan.headers.clone();
        headers.retain(|(name, _)| name != header::CONTENT_TYPE);
        let body = match &place.json {
            Some(json) => {
                headers.push((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
                Bytes::from(json.to_string())
            }
            None => Bytes::new(),
        };
        let token = match &self.plan.oauth {
            Some(oauth) => Some(oauth.authorization(&self.options, end).await?),
            None => None,
        };
        headers.extend(token.clone().map(|token| (header::AUTHORIZATION, token)));
        let request = Request { method: method.clone(), url: place.url.clone(), headers, body };
        let asked = timeout_at(end, http1::exchange(&request, &self.options, Arc::new(AlwaysOpen)));
        let seen = asked
            .await
            .map_err(|_elapsed| format!("no whole answer within {}", humantime::format_duration(self.plan.within)))?;
        let Some(reply) = seen.reply else {
            return Err(seen.cause.map_or_else(|| "no reply".to_owned(), |cause| cause.to_string()));
        };
        evidence.retry_after = evidence.retry_after.max(asked_to_wait(&reply, self.longest_wait));
        if let (401, Some(oauth), Some(token)) = (reply.status, &self.plan.oauth, &token) {
            oauth.forget(token).await;
        }
        let kind = reply.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if ["text/html", "application/xhtml"].iter().any(|html| kind.trim().to_ascii_lowercase().starts_with(html)) {
            return Err(format!(
                "status {} with a page for people (html): a log-in page, a proxy or a wrong address",
                reply.status
            ));
        }
        if reply.truncated {
            return Err(format!("the answer is cut: larger than {} bytes, late or broken", self.plan.page_bytes));
        }
        if !readable.contains(&reply.status) || method == http::Method::HEAD {
            return Ok(Page { status: reply.status, body: None, raw: reply.body, links: Vec::new() });
        }
        let links = reply.headers.get_all(header::LINK).iter();
        // A link that is no text must not look like none.
        let links = links.map(|link| link.to_str().unwrap_or("(unreadable)").to_owned()).collect();
        match serde_json::from_slice(&reply.body) {
            Ok(value) => Ok(Page { status: reply.status, body: Some(value), raw: reply.body, links }),
            Err(error) => Err(format!(
                "status {} with a body that is no JSON ({:?} at byte {})",
                reply.status,
                error.classify(),
                error.column()
            )),
        }
    }
}

/// How long the downstream wants to be left alone: the header of an answer that says "not now". A date counts from the
/// downstream's own clock where the answer shows it.
fn asked_to_wait(reply: &Reply, longest: Duration) -> Option<Duration> {
    if !matches!(reply.status, 408 | 425 | 429 | 500..=599) {
        return None;
    }
    let date = reply.headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let now = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()).map_or_else(Utc::now, |date| date.to_utc());
    retry_after(&reply.headers, Unit::Seconds, u64::try_from(now.timestamp()).unwrap_or(0), longest)
        .map(Duration::from_secs)
}

/// When a question that starts now must be answered.
pub(super) fn end(within: Duration) -> Instant {
    Instant::now() + within
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_query_parameter_is_encoded_and_replaced() {
        let mut url = Url::parse("https://h.test/x?a=1&cur%73or=2").unwrap();
        append(&mut url, "DateSent>", "2025-03-04 22:30&x=#'");
        assert_eq!(url.query(), Some("a=1&cur%73or=2&DateSent%3E=2025-03-04%2022%3A30%26x%3D%23%27"));
        set(&mut url, "cursor", "n/2");
        assert_eq!(url.query(), Some("a=1&DateSent%3E=2025-03-04%2022%3A30%26x%3D%23%27&cursor=n%2F2"));
        let mut bare = Url::parse("https://h.test/x").unwrap();
        set(&mut bare, "offset", "3");
        assert_eq!(bare.as_str(), "https://h.test/x?offset=3");
    }
}
