//! Webhooks: one signed request of JSON to one URL (Standard Webhooks 1.0).
//!
//! Built once for each generation of a destination by [`super::registry`], used by the dispatcher. What must hold: the body
//! is the payload's bytes as given, never printed again; an equal attempt carries equal bytes but for the timestamp, the
//! signature and the attempt number; the reference is in every message.

pub mod signature;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use url::{Host, Url};

use super::{
    Channel, Prepared, Unsupported, Wire,
    classify::{self, Context, ReplyRules},
    wire::{
        guard,
        http1::{Options, Request, exchange},
    },
};
use crate::{
    clock::unix_seconds,
    config::{
        BuildError,
        access::{self, Setting},
        destination::Destination,
    },
    domain::{
        gate::{BoxFuture, Gate},
        intent::Outgoing,
        outcome::{Ended, Outcome, Proof, Report},
    },
};
use signature::{Signers, SigningSecret};

/// Names the renderer, not the release: it is part of the digest that makes a replay a replay.
const USER_AGENT: HeaderValue = HeaderValue::from_static("settled/1");

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SETTLED_REFERENCE: HeaderName = HeaderName::from_static("settled-reference");
const SETTLED_OCCURRENCE: HeaderName = HeaderName::from_static("settled-occurrence");
const SETTLED_ATTEMPT: HeaderName = HeaderName::from_static("settled-attempt");

/// `[destinations.webhook]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where it goes: http or https, no user name, no fragment.
    pub url: Url,
    /// POST, PUT or PATCH.
    #[serde(default = "post")]
    pub method: String,
    /// Secrets to sign with, each as a signature of its own: `whsec_` and base64, `raw:` and text, or an ed25519 key as
    /// `whsk_` and base64. Two while one is replaced by another. None: not signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signing_secrets: Vec<SigningSecret>,
    /// Headers of every request; values stand here or come from secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Setting>,
    /// Sends `settled-reference`. Without it a payload that does not contain its reference is not sent.
    #[serde(default = "yes")]
    pub reference_header: bool,
    /// What replies mean.
    #[serde(default)]
    pub reply: ReplyRules,
}

fn post() -> String {
    Method::POST.to_string()
}

fn yes() -> bool {
    true
}

/// The channel of one destination.
pub struct Webhook {
    url: Url,
    method: Method,
    signers: Signers,
    headers: Vec<(HeaderName, HeaderValue)>,
    reference_header: bool,
    attempt_header: bool,
    reply: ReplyRules,
    retry_after_cap: std::time::Duration,
    options: Options,
}

impl Webhook {
    /// Checks the settings and loads the secrets.
    ///
    /// # Errors
    /// Names the setting and the rule it breaks.
    pub fn build(destination: &Destination) -> Result<Self, BuildError> {
        let Some(value) = &destination.webhook else {
            return Err(BuildError::new("webhook", "must be given where channel = \"webhook\""));
        };
        let settings: Settings = serde_json::from_value(value.clone())
            .map_err(|error| BuildError::new("webhook", format!("cannot be read: {error}")))?;
        check_url(&settings.url, destination)?;
        let method = match settings.method.as_str() {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            "PATCH" => Method::PATCH,
            _ => return Err(BuildError::new("webhook.method", "must be POST, PUT or PATCH")),
        };
        settings.reply.check("webhook.reply")?;
        let options =
            Options::of(destination).map_err(|error| BuildError::new("ca_file", format!("cannot be used: {error}")))?;
        let options = options.keeping(destination);
        Ok(Self {
            url: settings.url,
            method,
            signers: Signers::load(&settings.signing_secrets, "webhook.signing_secrets")?,
            headers: static_headers(&settings.headers)?,
            reference_header: settings.reference_header,
            // A downstream that compares what it is sent under one key must get the same again.
            attempt_header: destination.replay.is_none(),
            reply: settings.reply,
            retry_after_cap: destination.limits.backoff_max,
            options,
        })
    }

    fn request(&self, outgoing: &Outgoing) -> Result<Request, Unsupported> {
        let key = text(&outgoing.key, "key")?;
        let mut headers = vec![
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (header::USER_AGENT, USER_AGENT),
            (WEBHOOK_ID, key.clone()),
            (IDEMPOTENCY_KEY, key),
        ];
        if self.reference_header {
            headers.push((SETTLED_REFERENCE, text(&outgoing.reference, "reference")?));
        } else if outgoing.reference.is_empty() || !outgoing.payload.contains(&outgoing.reference) {
            return Err(Unsupported {
                field: "payload".to_owned(),
                rule: "must contain the reference, since reference_header is off".to_owned(),
            });
        }
        headers.push((SETTLED_OCCURRENCE, HeaderValue::from(outgoing.occurrence)));
        headers.extend(self.headers.iter().cloned());
        let body = Bytes::copy_from_slice(outgoing.payload.as_bytes());
        Ok(Request { method: self.method.clone(), url: self.url.clone(), headers, body })
    }

    /// What only this attempt carries.
    fn stamp(&self, request: &mut Request, outgoing: &Outgoing, now: u64) -> Result<(), Box<Ended>> {
        request.headers.push((WEBHOOK_TIMESTAMP, HeaderValue::from(now)));
        let signature = self.signers.sign(&outgoing.key, now, &request.body).map_err(|error| {
            // Until somebody gives it a secret; unsigned it must not go.
            let outcome = Outcome::NotSent { proof: Proof::Parked, retry_after: None };
            Box::new(Ended { outcome, report: Report::nothing_written(error.to_string()) })
        })?;
        if let Some(signature) = signature {
            let value = text(&signature, "signature").map_err(|error| Box::new(not_started(error.to_string())))?;
            request.headers.push((WEBHOOK_SIGNATURE, value));
        }
        if self.attempt_header {
            request.headers.push((SETTLED_ATTEMPT, HeaderValue::from(outgoing.attempt)));
        }
        Ok(())
    }
}

impl Channel for Webhook {
    fn prepare(&self, outgoing: &Outgoing) -> Result<Prepared, Unsupported> {
        let request = self.request(outgoing)?;
        Ok(Prepared { digest: digest(&request), wire: Wire::Http(request) })
    }

    fn acts_on_halves(&self) -> bool {
        !self.reply.incomplete_is_not_sent
    }

    fn send<'a>(&'a self, prepared: Prepared, outgoing: &'a Outgoing, gate: Arc<dyn Gate>) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            let now = unix_seconds();
            let mut request = match prepared.wire {
                Wire::Http(request) => request,
                Wire::Mail(_) => return not_started("a mail was handed to a webhook"),
            };
            if let Err(ended) = self.stamp(&mut request, outgoing, now) {
                return *ended;
            }
            let seen = exchange(&request, &self.options, gate).await;
            let context = Context {
                asked_json: true,
                retry_after_cap: self.retry_after_cap,
                earlier_bytes: outgoing.earlier_bytes,
                now,
            };
            classify::ended(&seen, &self.reply, context)
        })
    }
}

fn not_started(cause: impl Into<String>) -> Ended {
    Ended {
        outcome: Outcome::NotSent { proof: Proof::NotStarted, retry_after: None },
        report: Report::nothing_written(cause),
    }
}

fn text(value: &str, field: &str) -> Result<HeaderValue, Unsupported> {
    HeaderValue::from_str(value).ok().filter(|_| value.is_ascii() && !value.is_empty()).ok_or_else(|| Unsupported {
        field: field.to_owned(),
        rule: "must be visible ascii in one line, since it is a header".to_owned(),
    })
}

/// SHA-256 over method, URL, headers and body, each with its length in front. Values of secret headers are left out: a
/// rotated credential is no other request.
fn digest(request: &Request) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(request.method.as_str().as_bytes());
    part(request.url.as_str().as_bytes());
    for (name, value) in &request.headers {
        part(name.as_str().as_bytes());
        part(if value.is_sensitive() { b"" } else { value.as_bytes() });
    }
    part(&request.body);
    hash.finalize().into()
}

fn check_url(url: &Url, destination: &Destination) -> Result<(), BuildError> {
    let bad = |rule: String| Err(BuildError::new("webhook.url", rule));
    if !matches!(url.scheme(), "http" | "https") {
        return bad("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return bad("must not carry a user name or password; use headers with a secret".to_owned());
    }
    if url.fragment().is_some() {
        return bad("must not have a fragment".to_owned());
    }
    // The same verdict here and at the send, for what can be judged without asking a resolver.
    let address = match url.host() {
        Some(Host::Ipv4(v4)) => v4.into(),
        Some(Host::Ipv6(v6)) => v6.into(),
        Some(Host::Domain(_)) => return Ok(()),
        None => return bad("must name a host".to_owned()),
    };
    match guard::check(address, &destination.allow_addresses) {
        Ok(()) => Ok(()),
        Err(blocked) => bad(format!("leads to a {blocked} (allow_addresses can allow it)")),
    }
}

fn static_headers(settings: &BTreeMap<String, Setting>) -> Result<Vec<(HeaderName, HeaderValue)>, BuildError> {
    let headers = access::headers(None, settings, "webhook")?;
    let ours = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("webhook-")
            || name.starts_with("settled-")
            || matches!(name, "idempotency-key" | "user-agent" | "traceparent")
    };
    match headers.iter().find(|(name, _)| ours(name)) {
        Some((name, _)) => {
            Err(BuildError::new(format!("webhook.headers.{name}"), "is reserved: it is set by the sender".to_owned()))
        }
        None => Ok(headers),
    }
}
