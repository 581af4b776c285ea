//! Text messages through a provider's HTTP API, described by settings.
//!
//! Built from `[destinations.sms]`; called by the dispatcher through [`Channel`]. What must hold: a name of ours leaves with
//! every message (the provider's reference field, or the reference in the text); the text is sent as given, in at most
//! `max_segments` parts; Sent is only what `reply.sent_when` says; and no report repeats text or recipient, which providers
//! like to echo.
//!
//! ```toml
//! [destinations.sms]
//! url = "https://api.example/v1/messages"
//! auth = { basic = { user = "acme", password = { file = "/run/secrets/sms" } } }
//! from = "ACME"
//! json = { to = "{to}", from = "{from}", text = "{text}", client_reference = "{key}" }
//! reference_in = "/client_reference"
//! max_segments = 3
//! [destinations.sms.reply]
//! sent_when = { status = [201], json = { pointer = "/status", equals = "queued" } }
//! provider_id = "/id"
//! ```

mod render;
pub mod segments;
mod settings;

use std::sync::Arc;

pub use self::render::is_e164;
use self::settings::{Body, Plan};
use super::{
    Channel, Prepared, Unsupported, Wire,
    classify::{Context, ended},
    wire::http1::{Options, exchange},
};
use crate::{
    clock::unix_seconds,
    config::{BuildError, destination::Destination},
    domain::{
        gate::{BoxFuture, Gate},
        intent::Outgoing,
        outcome::{Ended, Outcome, Proof, Report},
    },
};

/// One provider.
pub struct Sms {
    plan: Plan,
    options: Options,
    retry_after_cap: std::time::Duration,
}

impl Sms {
    /// Builds it, reading its secrets.
    ///
    /// # Errors
    /// [`BuildError`] names the setting and the rule.
    pub fn build(destination: &Destination) -> Result<Self, BuildError> {
        let section =
            destination.sms.as_ref().ok_or_else(|| BuildError::new("sms", "must be there for channel = \"sms\""))?;
        let plan = Plan::build(section)?;
        let options =
            Options::of(destination).map_err(|error| BuildError::new("ca_file", format!("cannot be used: {error}")))?;
        Ok(Self { plan, options, retry_after_cap: destination.limits.backoff_max })
    }
}

impl Channel for Sms {
    fn prepare(&self, outgoing: &Outgoing) -> Result<Prepared, Unsupported> {
        render::prepare(&self.plan, outgoing)
    }

    fn acts_on_halves(&self) -> bool {
        !self.plan.reply.incomplete_is_not_sent
    }

    fn send<'a>(&'a self, prepared: Prepared, outgoing: &'a Outgoing, gate: Arc<dyn Gate>) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            let request = match prepared.wire {
                Wire::Http(request) => request,
                Wire::Mail(_) => {
                    return Ended {
                        outcome: Outcome::NotSent { proof: Proof::NotStarted, retry_after: None },
                        report: Report::nothing_written("a mail was handed to a channel for text messages"),
                    };
                }
            };
            let seen = exchange(&request, &self.options, gate).await;
            let context = Context {
                asked_json: matches!(self.plan.body, Body::Json(_)),
                retry_after_cap: self.retry_after_cap,
                earlier_bytes: outgoing.earlier_bytes,
                now: unix_seconds(),
            };
            let mut ended = ended(&seen, &self.plan.reply, context);
            ended.report.excerpt = ended.report.excerpt.filter(|excerpt| !echoes(excerpt, outgoing));
            ended
        })
    }
}

/// The reply repeats whom the message went to or what it says.
fn echoes(excerpt: &str, outgoing: &Outgoing) -> bool {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    // The last seven digits are enough to know a number by, in whatever spelling it comes back.
    let number = digits(&outgoing.recipient);
    let tail = &number[number.len().saturating_sub(7)..];
    if !tail.is_empty() && digits(excerpt).contains(tail) {
        return true;
    }
    let words = |text: &str| {
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let text = serde_json::from_str::<serde_json::Value>(&outgoing.payload)
        .ok()
        .and_then(|payload| payload.get("text").and_then(serde_json::Value::as_str).map(words));
    let (said, text): (Vec<String>, Vec<String>) = (words(excerpt), text.unwrap_or_default());
    // Three words in a row, or the whole of a shorter text.
    let run = text.len().min(3);
    run > 0 && text.windows(run).any(|part| said.windows(run).any(|other| other == part))
}

#[cfg(test)]
mod tests;
