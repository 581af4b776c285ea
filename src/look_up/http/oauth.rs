//! OAuth 2.0 for asking: the client credentials grant (RFC 6749, 4.4), or a refresh token that somebody was given (6).
//!
//! A token is kept in memory until shortly before its end, and thrown away when it is refused. A refresh token that the
//! server replaces at every use cannot be kept and does not fit here.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use url::Url;

use crate::{
    channels::wire::{
        AlwaysOpen,
        http1::{self, Options, Request},
    },
    config::{
        BuildError,
        access::load,
        secret::SecretRef,
        template::{UrlTemplate, percent},
    },
    look_up::template::Asked,
};

/// Time that must be left of a token.
const SPARE: Duration = Duration::from_secs(60);
/// Life of a token whose server does not say.
const SHORT: Duration = Duration::from_secs(300);

/// `oauth = { … }`, as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// Absolute, https.
    pub token_url: String,
    /// Who asks.
    pub client_id: String,
    /// Its secret.
    pub client_secret: SecretRef,
    /// Given: it is exchanged; else the client asks for itself.
    #[serde(default)]
    pub refresh_token: Option<SecretRef>,
    /// What is asked for.
    #[serde(default)]
    pub scope: Option<String>,
    /// Where the client's secret is put.
    #[serde(default)]
    pub client_in: ClientIn,
}

/// Where the client's secret is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClientIn {
    /// In the form.
    #[default]
    Body,
    /// In the header Authorization.
    Basic,
}

/// A checked setting, and the token in use.
pub(super) struct Oauth {
    url: Url,
    form: SecretString,
    basic: Option<HeaderValue>,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    header: HeaderValue,
    until: Instant,
}

impl Oauth {
    pub(super) fn build(setting: &Setting, field: &str) -> Result<Self, BuildError> {
        let at = |name: &str| format!("{field}.{name}");
        let url = UrlTemplate::<Asked>::parse(&setting.token_url, &at("token_url"))?;
        if url.variables().next().is_some() {
            return Err(BuildError::new(at("token_url"), "must have no variables"));
        }
        let url = Url::parse(&setting.token_url)
            .map_err(|error| BuildError::new(at("token_url"), format!("must be a url: {error}")))?;
        if setting.client_id.is_empty() {
            return Err(BuildError::new(at("client_id"), "must not be empty"));
        }
        let secret = load(&setting.client_secret, &at("client_secret"))?;
        let mut form = Vec::new();
        let mut add = |name: &str, value: &str| form.push(format!("{name}={}", percent(value)));
        match &setting.refresh_token {
            Some(token) => {
                add("grant_type", "refresh_token");
                add("refresh_token", load(token, &at("refresh_token"))?.expose_secret());
            }
            None => add("grant_type", "client_credentials"),
        }
        if let Some(scope) = &setting.scope {
            add("scope", scope);
        }
        let mut basic = None;
        match setting.client_in {
            ClientIn::Body => {
                add("client_id", &setting.client_id);
                add("client_secret", secret.expose_secret());
            }
            ClientIn::Basic => {
                // RFC 6749, 2.3.1: both are form-encoded first.
                let pair = format!("{}:{}", percent(&setting.client_id), percent(secret.expose_secret()));
                basic = Some(
                    sensitive(&format!("Basic {}", STANDARD.encode(pair)))
                        .ok_or_else(|| BuildError::new(at("client_secret"), "must be visible ascii in one line"))?,
                );
            }
        }
        Ok(Self { url, form: SecretString::from(form.join("&")), basic, kept: Mutex::new(None) })
    }

    /// The header Authorization for one request.
    pub(super) async fn authorization(&self, options: &Options, end: Instant) -> Result<HeaderValue, String> {
        // Held while a token is fetched: many questions need one token.
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return Ok(kept.header.clone());
        }
        let fresh = self.fetch(options, end).await.map_err(|why| format!("no access token: {why}"))?;
        let header = fresh.header.clone();
        *kept = Some(fresh);
        Ok(header)
    }

    /// It was refused; the next request fetches another.
    pub(super) async fn forget(&self, refused: &HeaderValue) {
        let mut kept = self.kept.lock().await;
        if kept.as_ref().is_some_and(|kept| kept.header == *refused) {
            *kept = None;
        }
    }

    async fn fetch(&self, options: &Options, end: Instant) -> Result<Kept, String> {
        let mut headers = vec![
            (header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded")),
            (header::ACCEPT, HeaderValue::from_static("application/json")),
        ];
        headers.extend(self.basic.clone().map(|value| (header::AUTHORIZATION, value)));
        let body = bytes::Bytes::from(self.form.expose_secret().to_owned());
        let request = Request { method: http::Method::POST, url: self.url.clone(), headers, body };
        let seen = timeout_at(end, http1::exchange(&request, options, Arc::new(AlwaysOpen)))
            .await
            .map_err(|_elapsed| "no answer in time".to_owned())?;
        let Some(reply) = seen.reply else {
            return Err(seen.cause.map_or_else(|| "no reply".to_owned(), |cause| cause.to_string()));
        };
        if reply.status != 200 || reply.truncated {
            return Err(format!("status {}", reply.status));
        }
        // What cannot be read may be a token: nothing of it is repeated.
        let body: Value = serde_json::from_slice(&reply.body).map_err(|_| "an answer that is no JSON".to_owned())?;
        let kind = body.pointer("/token_type").and_then(Value::as_str).unwrap_or("bearer");
        if !kind.eq_ignore_ascii_case("bearer") {
            return Err("a token that is no bearer token".to_owned());
        }
        let token = body.pointer("/access_token").and_then(Value::as_str).filter(|token| !token.is_empty());
        let header =
            token.and_then(|token| sensitive(&format!("Bearer {token}"))).ok_or("an answer without an access token")?;
        let life = match body.pointer("/expires_in") {
            Some(Value::Number(seconds)) => seconds.as_u64().map(Duration::from_secs),
            Some(Value::String(text)) => text.parse().ok().map(Duration::from_secs),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
        };
        let life = life.unwrap_or(SHORT).min(Duration::from_secs(86_400));
        Ok(Kept { header, until: Instant::now() + life.saturating_sub(SPARE) })
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}
