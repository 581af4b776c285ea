//! What an HTTP exchange means. A closed table: what it does not know is Ambiguous.
//!
//! Used by the webhook and SMS channels. What must hold: nothing but a reply that says so is Sent; nothing but a proof (no
//! conversation, an incomplete request on a connection that is gone, a definite "not now") is NotSent.

mod retry_after;
mod rules;

pub use retry_after::retry_after;
pub use rules::{Condition, HeaderCondition, JsonCondition, Override, OverrideOutcome, ReplyRules, Unit};

use std::time::Duration;

use http::header;

use super::wire::{
    dial::DialError,
    http1::{Cause, Exchange, Reply},
};
use crate::domain::{
    outcome::{DoubtKind, Ended, Outcome, Proof, Report},
    plain::is_odd,
};

/// Most characters of a reply that are kept with the attempt.
const EXCERPT: usize = 500;

/// Most characters of a name that the downstream gives to an effect.
const PROVIDER_ID: usize = 200;

/// What the table must know beside the exchange.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The request was JSON, so an HTML page is no answer to it.
    pub asked_json: bool,
    /// Longest Retry-After that is obeyed.
    pub retry_after_cap: Duration,
    /// An earlier attempt of this intent handed over bytes.
    pub earlier_bytes: bool,
    /// Seconds since the epoch, for Retry-After in the form of a date.
    pub now: u64,
}

/// The outcome, and a remark for a person where the outcome alone does not say why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// What it means.
    pub outcome: Outcome,
    /// Why, in words.
    pub note: Option<String>,
}

impl Judged {
    fn plain(outcome: Outcome) -> Self {
        Self { outcome, note: None }
    }

    fn noted(outcome: Outcome, note: impl Into<String>) -> Self {
        Self { outcome, note: Some(note.into()) }
    }
}

fn unclear(note: impl Into<String>) -> Judged {
    Judged::noted(Outcome::Ambiguous { doubt: DoubtKind::UnclearReply }, note)
}

fn not_sent(proof: Proof) -> Judged {
    Judged::plain(Outcome::NotSent { proof, retry_after: None })
}

/// The outcome of an exchange with its report, as a channel returns it.
pub fn ended(exchange: &Exchange, rules: &ReplyRules, context: Context) -> Ended {
    let judged = judge(exchange, rules, context);
    let reply = exchange.reply.as_ref();
    let cause = match (&judged.note, &exchange.cause) {
        (Some(note), Some(cause)) => Some(format!("{note}; {cause}")),
        (Some(note), None) => Some(note.clone()),
        (None, cause) => cause.as_ref().map(ToString::to_string),
    };
    let report = Report {
        stage: exchange.stage,
        bytes_handed: exchange.bytes_handed,
        bytes_needed: exchange.bytes_needed,
        code: reply.map(|r| r.status),
        excerpt: reply.and_then(excerpt),
        peer: exchange.peer.map(|p| p.to_string()),
        millis: exchange.millis,
        cause,
        account: None,
        replayed: reply.is_some_and(replayed),
        closed: Some(exchange.closed.as_str().to_owned()),
    };
    Ended { outcome: judged.outcome, report }
}

/// The outcome alone.
pub fn classify(exchange: &Exchange, rules: &ReplyRules, context: Context) -> Outcome {
    judge(exchange, rules, context).outcome
}

/// The table.
pub fn judge(exchange: &Exchange, rules: &ReplyRules, context: Context) -> Judged {
    match &exchange.reply {
        Some(reply) => by_reply(reply, exchange, rules, context),
        None => without_reply(exchange, rules),
    }
}

/// The connection is gone and the downstream never had the whole request; a downstream that acts on halves says so.
fn stayed_incomplete(exchange: &Exchange, rules: &ReplyRules) -> bool {
    !exchange.complete && (rules.incomplete_is_not_sent || exchange.bytes_handed == 0)
}

fn without_reply(exchange: &Exchange, rules: &ReplyRules) -> Judged {
    let doubt = |doubt| Judged::plain(Outcome::Ambiguous { doubt });
    let incomplete = stayed_incomplete(exchange, rules);
    let Some(cause) = &exchange.cause else {
        return doubt(DoubtKind::ConnectionLost);
    };
    match cause {
        Cause::NotBuilt(_) => not_sent(Proof::NotStarted),
        Cause::Dial(DialError::Tls { .. }) => not_sent(Proof::TlsFailed),
        Cause::Dial(
            DialError::NotResolved { .. } | DialError::Blocked(_) | DialError::Refused { .. } | DialError::TimedOut(_),
        ) => not_sent(Proof::NotConnected),
        Cause::SelfStop if incomplete => not_sent(Proof::SelfStopped),
        Cause::BodyTimeout(_)
        | Cause::ReplyTimeout(_)
        | Cause::Reset(_)
        | Cause::Eof
        | Cause::Unparsable(_)
        | Cause::Io(_)
            if incomplete =>
        {
            not_sent(Proof::Incomplete)
        }
        Cause::BodyTimeout(_) | Cause::ReplyTimeout(_) => doubt(DoubtKind::NoReply),
        Cause::SelfStop | Cause::Reset(_) | Cause::Eof | Cause::Io(_) => doubt(DoubtKind::ConnectionLost),
        Cause::Unparsable(_) => doubt(DoubtKind::UnclearReply),
    }
}

fn by_reply(reply: &Reply, exchange: &Exchange, rules: &ReplyRules, context: Context) -> Judged {
    let status = reply.status;
    if status >= 500 && replayed(reply) {
        return Judged::noted(
            Outcome::Ambiguous { doubt: DoubtKind::PoisonedKey },
            format!("status {status} is replayed from the downstream's store of keys"),
        );
    }
    if let Some(special) = rules.overrides.get(&status) {
        let judged = overridden(special.outcome, reply, exchange, rules, context);
        return Judged::noted(judged.outcome, format!("status {status}: {}", special.reason));
    }
    if rules.refused_when.as_ref().is_some_and(|condition| condition.holds(reply)) {
        return Judged::noted(Outcome::Refused { code: status }, "the reply matches refused_when");
    }
    if rules.duplicate_reply.contains(&status) {
        return if rules.compares_key || context.earlier_bytes {
            Judged::noted(sent(reply, rules), format!("status {status} says that it has this one already"))
        } else {
            unclear(format!(
                "conflict: status {status} says duplicate, but nothing of this intent was handed over before"
            ))
        };
    }
    let says_sent = rules.sent_when.as_ref().map(|condition| condition.holds(reply));
    if says_sent == Some(true) || (200..=299).contains(&status) {
        return accepted(says_sent, reply, exchange, rules, context);
    }
    by_status(reply, exchange, rules, context)
}

/// A 2xx, or what `sent_when` takes for one.
fn accepted(
    says_sent: Option<bool>,
    reply: &Reply,
    exchange: &Exchange,
    rules: &ReplyRules,
    context: Context,
) -> Judged {
    let status = reply.status;
    if !exchange.complete {
        return unclear(format!("status {status} came before the request was complete"));
    }
    match says_sent {
        Some(true) => Judged::plain(sent(reply, rules)),
        Some(false) => unclear(format!("status {status}, but the reply does not match sent_when")),
        None if context.asked_json && is_html(reply) => {
            unclear(format!("status {status} with an HTML page in answer to JSON"))
        }
        None => Judged::plain(sent(reply, rules)),
    }
}

fn by_status(reply: &Reply, exchange: &Exchange, rules: &ReplyRules, context: Context) -> Judged {
    let status = reply.status;
    match status {
        425 => put_off(Proof::Deferred, reply, rules, context),
        429 => put_off(Proof::Throttled, reply, rules, context),
        401 | 403 | 407 => Judged::noted(
            Outcome::NotSent { proof: Proof::Parked, retry_after: None },
            format!("status {status}: the downstream refuses our credentials or us"),
        ),
        408 | 409 => unsure(exchange, rules, format!("status {status} does not say whether it was done")),
        400..=499 => Judged::plain(Outcome::Refused { code: status }),
        300..=399 => unsure(exchange, rules, redirect(reply)),
        _ => unsure(exchange, rules, format!("status {status} does not say whether it was done")),
    }
}

/// A reply that proves nothing: the request may still have stayed incomplete.
fn unsure(exchange: &Exchange, rules: &ReplyRules, note: String) -> Judged {
    if stayed_incomplete(exchange, rules) {
        let outcome = Outcome::NotSent { proof: Proof::Incomplete, retry_after: None };
        return Judged::noted(outcome, format!("{note}, but it came before the request was complete"));
    }
    unclear(note)
}

fn overridden(
    outcome: OverrideOutcome,
    reply: &Reply,
    exchange: &Exchange,
    rules: &ReplyRules,
    context: Context,
) -> Judged {
    match outcome {
        OverrideOutcome::Sent if !exchange.complete => unclear(String::new()),
        OverrideOutcome::Sent => Judged::plain(sent(reply, rules)),
        OverrideOutcome::Refused => Judged::plain(Outcome::Refused { code: reply.status }),
        OverrideOutcome::Deferred => put_off(Proof::Throttled, reply, rules, context),
        OverrideOutcome::Parked => not_sent(Proof::Parked),
        OverrideOutcome::Unknown => unclear(String::new()),
    }
}

fn put_off(proof: Proof, reply: &Reply, rules: &ReplyRules, context: Context) -> Judged {
    let wait = retry_after(&reply.headers, rules.retry_after, context.now, context.retry_after_cap);
    Judged::plain(Outcome::NotSent { proof, retry_after: wait })
}

fn sent(reply: &Reply, rules: &ReplyRules) -> Outcome {
    Outcome::Sent { provider_id: rules.provider_id.as_deref().and_then(|pointer| provider_id(reply, pointer)) }
}

/// The downstream's name for the effect: a text or a number at `pointer`.
fn provider_id(reply: &Reply, pointer: &str) -> Option<String> {
    let json: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    let text = match json.pointer(pointer)? {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => number.to_string(),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Array(_)
        | serde_json::Value::Object(_) => return None,
    };
    let text: String = text.chars().filter(|c| !is_odd(*c)).take(PROVIDER_ID).collect();
    (!text.is_empty()).then_some(text)
}

/// `Idempotent-Replayed` or its X- form says true: the answer was given before.
pub fn replayed(reply: &Reply) -> bool {
    ["idempotent-replayed", "x-idempotent-replayed"].iter().any(|name| {
        reply.headers.get(*name).is_some_and(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"true"))
    })
}

/// An HTML page by its declared type, or by its beginning where it declares none or only "text".
fn is_html(reply: &Reply) -> bool {
    let declared = rules::media_type(reply);
    if matches!(declared.as_str(), "text/html" | "application/xhtml+xml") {
        return true;
    }
    let start = reply.body.trim_ascii_start();
    matches!(declared.as_str(), "" | "text/plain" | "application/octet-stream")
        && [&b"<!doctype html"[..], b"<html"]
            .iter()
            .any(|tag| start.get(..tag.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(tag)))
}

/// Tells which host to configure, never the whole target: its query may hold tokens.
fn redirect(reply: &Reply) -> String {
    let target = reply.headers.get(header::LOCATION).and_then(|v| v.to_str().ok());
    let origin = target.and_then(|t| url::Url::parse(t).ok()).map(|u| u.origin().ascii_serialization());
    match (origin, target) {
        (Some(origin), _) => format!("status {}: redirect to {origin}, not followed", reply.status),
        (None, Some(_)) => format!("status {}: redirect inside the same host, not followed", reply.status),
        (None, None) => format!("status {} is no success", reply.status),
    }
}

/// The beginning of the body in printable form.
fn excerpt(reply: &Reply) -> Option<String> {
    let bytes = reply.body.get(..reply.body.len().min(EXCERPT * 4)).unwrap_or_default();
    let text: String =
        String::from_utf8_lossy(bytes).chars().map(|c| if is_odd(c) { ' ' } else { c }).take(EXCERPT).collect();
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
