//! One request of a question, and what may be read of its reply. Everything odd is words, never an error.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::header;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{
    Http,
    plan::{Plan, QueryValue},
};
use crate::{
    channels::wire::{
        AlwaysOpen,
        http1::{self, Request},
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
}

/// The first URL and the body of a request.
pub(super) fn render(plan: &Plan, values: &Values<'_>) -> Result<(Url, Bytes), Refused> {
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
    let body = match &plan.json {
        Some(template) => Bytes::from(template.render(&value)?.to_string()),
        None => Bytes::new(),
    };
    Ok((url, body))
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
        url: Url,
        body: Bytes,
        readable: &[u16],
        end: Instant,
    ) -> Result<Page, String> {
        let mut headers = self.plan.headers.clone();
        if body.is_empty() {
            headers.retain(|(name, _)| name != header::CONTENT_TYPE);
        }
        let request = Request { method: method.clone(), url, headers, body };
        let asked = timeout_at(end, http1::exchange(&request, &self.options, Arc::new(AlwaysOpen)));
        let seen = asked
            .await
            .map_err(|_elapsed| format!("no whole answer within {}", humantime::format_duration(self.plan.within)))?;
        let Some(reply) = seen.reply else {
            return Err(seen.cause.map_or_else(|| "no reply".to_owned(), |cause| cause.to_string()));
        };
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
            return Ok(Page { status: reply.status, body: None, raw: reply.body });
        }
        match serde_json::from_slice(&reply.body) {
            Ok(value) => Ok(Page { status: reply.status, body: Some(value), raw: reply.body }),
            Err(error) => Err(format!(
                "status {} with a body that is no JSON ({:?} at byte {})",
                reply.status,
                error.classify(),
                error.column()
            )),
        }
    }
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
