//! `settled escalations`: people decide, over HTTP, each with their own token.

mod arguments;
mod view;

use chrono::{DateTime, Utc};
use serde_json::Value;

pub use arguments::Escalations;
use arguments::{List, On, Reasoned};

use super::{
    arguments::Api,
    client::Client,
    context::Context,
    enqueue::ok,
    exit::{Exit, Failure},
};
use crate::engine::resolution::{Act, ActError, Words};

pub(super) async fn run(context: &Context, which: &Escalations) -> Result<Exit, Failure> {
    match (which, told(which)?) {
        (Escalations::List(asked), _) => list(context, asked).await,
        (Escalations::Show { id, api }, _) => show(context, *id, api).await,
        (_, Some((verb, on, words))) => take(context, verb, on, words).await,
        (_, None) => Err(Failure::new(Exit::Failed, "an act without a verb")),
    }
}

/// The verb, what it is about, and what was said with it.
fn told(which: &Escalations) -> Result<Option<(&'static str, &On, Words)>, Failure> {
    let nothing = Words::default();
    let because = |reason: &String| Words { reason: Some(reason.clone()), ..Words::default() };
    let maybe = |reason: &Option<String>| Words { reason: reason.clone(), ..Words::default() };
    let seen = |evidence: &String| Words { evidence: Some(evidence.clone()), ..Words::default() };
    let reasoned = |verb, r: &'_ Reasoned| (verb, because(&r.reason));
    let ((verb, words), on) = match which {
        Escalations::List(_) | Escalations::Show { .. } => return Ok(None),
        Escalations::Claim { on, span } => (("claim", until(*span)?), on),
        Escalations::TakeOver { on, span } => (("take_over", until(*span)?), on),
        Escalations::Snooze { on, span } => (("snooze", until(Some(*span))?), on),
        Escalations::Release { on } => (("release", nothing), on),
        Escalations::Ask { on } => (("ask", nothing), on),
        Escalations::Sent { on, evidence } => (("sent", seen(evidence)), on),
        Escalations::Absent { on, evidence } => (("absent", seen(evidence)), on),
        Escalations::SendAgain { on, reason, reference, deadline } => {
            let words = Words { reference: Some(reference.clone()), deadline: *deadline, ..because(reason) };
            (("send_again", words), on)
        }
        Escalations::Stop { on, reason } => (("stop", maybe(reason)), on),
        Escalations::Retract { on, statement, reason } => {
            (("retract", Words { statement: Some(*statement), ..because(reason) }), on)
        }
        Escalations::Comment { on, text } => (("comment", because(text)), on),
        Escalations::Assign { on, to } => (("assign", Words { to: Some(to.clone()), ..Words::default() }), on),
        Escalations::Approve { on, reason } => (("approve", maybe(reason)), on),
        Escalations::Close(r) => (reasoned("close", r), &r.on),
        Escalations::Compensate(r) => (reasoned("compensate", r), &r.on),
        Escalations::Cancel(r) => (reasoned("cancel", r), &r.on),
        Escalations::Reject(r) => (reasoned("reject", r), &r.on),
        Escalations::Acknowledge(r) => (reasoned("acknowledge", r), &r.on),
        Escalations::Unpark(r) => (reasoned("unpark", r), &r.on),
    };
    Ok(Some((verb, on, words)))
}

fn until(span: Option<std::time::Duration>) -> Result<Words, Failure> {
    let until: Option<DateTime<Utc>> = match span {
        None => None,
        Some(span) => Some(
            chrono::TimeDelta::from_std(span)
                .ok()
                .and_then(|span| Utc::now().checked_add_signed(span))
                .ok_or_else(|| Failure::new(Exit::Invalid, "--for: must be shorter"))?,
        ),
    };
    Ok(Words { until, ..Words::default() })
}

fn client(api: &Api) -> Result<Client, Failure> {
    Client::of(api)?.ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "give --url, or set SETTLED_URL: people decide over the API, each with their own token",
        )
    })
}

async fn take(context: &Context, verb: &str, on: &On, mut words: Words) -> Result<Exit, Failure> {
    let act = Act::read(verb, &words).map_err(|error| match error {
        ActError::Incomplete { field, rule } => Failure::new(Exit::Invalid, format!("--{field}: {rule}")),
        ActError::Forbidden(_)
        | ActError::NotFound(_)
        | ActError::NotPossible(_)
        | ActError::Stale { .. }
        | ActError::ReRequested { .. }
        | ActError::Store(_) => Failure::new(Exit::Usage, error.to_string()),
    })?;
    let client = client(&on.api)?;
    words.version = match on.version {
        Some(version) => Some(version),
        None if act.decides() => Some(newest(context, &client, on, &act).await?),
        None => None,
    };
    let path = match on.intent {
        true => format!("/v1/intents/{}/acts/{verb}", on.id),
        false => format!("/v1/escalations/{}/{verb}", on.id),
    };
    let reply = client.call("POST", &path, &[], Some(serde_json::to_string(&words)?)).await?;
    let done = ok(&reply)?;
    context.out.value(&done, view::done)?;
    Ok(Exit::Ok)
}

/// The version as it is now, where the person named none.
async fn newest(context: &Context, client: &Client, on: &On, act: &Act) -> Result<i64, Failure> {
    let path = match on.intent {
        true => format!("/v1/intents/{}", on.id),
        false => format!("/v1/escalations/{}", on.id),
    };
    let seen = ok(&client.call("GET", &path, &[], None).await?)?;
    let version = match (on.intent, act.handles()) {
        (true, _) => &seen["version"],
        (false, true) => &seen["versions"]["escalation"],
        (false, false) => &seen["versions"]["intent"],
    };
    let version = version
        .as_i64()
        .ok_or_else(|| Failure::new(Exit::NotPossible, "it is about no intent that could be decided on"))?;
    context.out.say(&format!("deciding on version {version}, the newest; --version names the one that you have read"));
    Ok(version)
}

async fn list(context: &Context, asked: &List) -> Result<Exit, Failure> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    };
    add("reason", asked.reason.clone());
    add("destination", asked.destination.clone());
    add("tenant", asked.tenant.clone());
    add("claimed", asked.claimed.map(|claimed| claimed.to_string()));
    add("mine", asked.mine.then(|| "true".to_owned()));
    add("snoozed", asked.snoozed.then(|| "true".to_owned()));
    add("state", asked.closed.then(|| "closed".to_owned()));
    add("before", asked.before.map(|id| id.to_string()));
    add("limit", Some(asked.limit.to_string()));
    let path = format!("/v1/escalations?{}", query.finish());
    let seen = ok(&client(&asked.api)?.call("GET", &path, &[], None).await?)?;
    let rows = |member: &str| seen[member].as_array().cloned().unwrap_or_default();
    if asked.causes {
        context.out.rows(&rows("causes"), &view::CAUSES, view::cause)?;
        return Ok(Exit::Ok);
    }
    context.out.rows(&rows("escalations"), &view::ROWS, view::row)?;
    if let Value::String(next) = &seen["next"] {
        context.out.say(&format!("older ones: --before {next}"));
    }
    Ok(Exit::Ok)
}

async fn show(context: &Context, id: uuid::Uuid, api: &Api) -> Result<Exit, Failure> {
    let seen = ok(&client(api)?.call("GET", &format!("/v1/escalations/{id}"), &[], None).await?)?;
    context.out.value(&seen, view::page)?;
    Ok(Exit::Ok)
}
