//! Who takes care of an escalation. Nothing here touches the intent, so it is allowed while an attempt is open.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{
    Act, ActError, Call, Resolved,
    repeated::{Recent, append, did},
};
use crate::{
    domain::{reason::Reason, state::State},
    engine::folding::ActTold,
    store::{
        self,
        escalations::{
            handling,
            reading::{self, Escalation},
        },
        tokens::Kind,
    },
};

/// How long a claim binds where nothing is said.
const CLAIM: TimeDelta = TimeDelta::minutes(30);
/// Longest claim.
const LONGEST_CLAIM: TimeDelta = TimeDelta::hours(24);
/// Longest snooze.
const LONGEST_SNOOZE: TimeDelta = TimeDelta::days(30);

/// What is to be written.
enum Change {
    Claim(DateTime<Utc>),
    Release,
    Snooze(DateTime<Utc>),
    Assign(String),
    Close(String),
}

pub(super) async fn handle(conn: &mut PgConnection, call: &Call<'_>, seen: Escalation) -> Result<Resolved, ActError> {
    let id = seen.id;
    let now = handling::lock(conn, id, call.at).await?.ok_or(ActError::NotFound("escalation"))?;
    let e = reading::get(conn, id, call.person.tenant.as_deref()).await?.ok_or(ActError::NotFound("escalation"))?;
    let recent = match e.intent_id {
        Some(intent_id) => Recent::read(conn, intent_id).await?,
        None => Recent::none(),
    };
    let Some(change) = change(call, &e, now)? else { return Ok(resolved(call, &e, None, true)) };
    if e.closed_at.is_some() || call.expected.is_some_and(|expected| expected != e.version) {
        return Err(stale(&e, &recent));
    }
    if let Act::Acknowledge { .. } = call.act {
        acknowledgeable(&e)?;
        not_another(call, &e, now)?;
    }
    if let Act::Unpark { .. } = call.act {
        store::generations::unpark(conn, &e.destination).await?;
    }
    let written = match &change {
        Change::Claim(until) => handling::claim(conn, id, e.version, call.actor, *until).await?,
        Change::Release => handling::release(conn, id, e.version).await?,
        Change::Snooze(until) => handling::snooze(conn, id, e.version, *until).await?,
        Change::Assign(to) => handling::assign(conn, id, e.version, to).await?,
        Change::Close(words) => handling::acknowledge(conn, id, e.version, call.actor, words, now).await?,
    };
    if !written {
        return Err(stale(&e, &recent));
    }
    let (reason, more) = match change {
        Change::Claim(until) | Change::Snooze(until) => (None, Some(json!({ "until": until }))),
        Change::Assign(to) => (None, Some(json!({ "to": to }))),
        Change::Close(_) => (words_of(call.act), destination_of(&e)),
        Change::Release => (None, None),
    };
    let told = ActTold { act: call.act.verb().to_owned(), reason, escalation: Some(id), more, ..ActTold::default() };
    let row = append(conn, call, e.intent_id, None, &told).await?;
    let after = reading::get(conn, id, None).await?.unwrap_or(e);
    Ok(resolved(call, &after, Some(row), false))
}

fn words_of(act: &Act) -> Option<String> {
    match act {
        Act::Acknowledge { reason } | Act::Unpark { reason } => Some(reason.clone()),
        Act::Claim { .. }
        | Act::Release
        | Act::TakeOver { .. }
        | Act::Snooze { .. }
        | Act::Assign { .. }
        | Act::Comment { .. }
        | Act::Ask
        | Act::Sent { .. }
        | Act::Absent { .. }
        | Act::SendAgain { .. }
        | Act::Stop { .. }
        | Act::Close { .. }
        | Act::Compensate { .. }
        | Act::Cancel { .. }
        | Act::Retract { .. }
        | Act::Approve { .. }
        | Act::Reject { .. } => None,
    }
}

fn destination_of(e: &Escalation) -> Option<Value> {
    e.intent_id.is_none().then(|| json!({ "destination": e.destination, "reason": e.reason }))
}

/// What the act would change; `None` where this person has done the same before.
fn change(call: &Call<'_>, e: &Escalation, now: DateTime<Utc>) -> Result<Option<Change>, ActError> {
    let open = e.closed_at.is_none();
    let own = open && e.claimed_by.as_deref() == Some(call.actor) && e.claimed_until.is_some_and(|until| until > now);
    match call.act {
        Act::Claim { until } | Act::TakeOver { until } => {
            let until = bounded("until", until.unwrap_or(now + CLAIM), now, LONGEST_CLAIM)?;
            if own && e.claimed_until.is_some_and(|had| had >= until - CLAIM) {
                return Ok(None);
            }
            if matches!(call.act, Act::Claim { .. }) {
                not_another(call, e, now)?;
            }
            Ok(Some(Change::Claim(until)))
        }
        Act::Release => {
            if open && e.claimed_by.is_none() {
                return Ok(None);
            }
            if call.person.kind != Kind::Admin {
                not_another(call, e, now)?;
            }
            Ok(Some(Change::Release))
        }
        Act::Snooze { until } => {
            let until = bounded("until", *until, now, LONGEST_SNOOZE)?;
            Ok((!open || e.snoozed_until != Some(until)).then_some(Change::Snooze(until)))
        }
        Act::Assign { to } => {
            let same = open && e.assigned_to.as_deref() == Some(to);
            Ok((!same).then(|| Change::Assign(to.clone())))
        }
        Act::Acknowledge { reason } => Ok(closing(call, e, format!("acknowledged: {reason}"))),
        Act::Unpark { reason } => {
            if e.reason != Reason::DestinationParked.as_str() {
                return Err(ActError::NotPossible(format!("the reason is {}, nothing is parked", e.reason)));
            }
            Ok(closing(call, e, format!("un-parked: {reason}")))
        }
        Act::Comment { .. }
        | Act::Ask
        | Act::Sent { .. }
        | Act::Absent { .. }
        | Act::SendAgain { .. }
        | Act::Stop { .. }
        | Act::Close { .. }
        | Act::Compensate { .. }
        | Act::Cancel { .. }
        | Act::Retract { .. }
        | Act::Approve { .. }
        | Act::Reject { .. } => Err(ActError::NotPossible(format!("{} decides about an intent", call.act.verb()))),
    }
}

fn closing(call: &Call<'_>, e: &Escalation, words: String) -> Option<Change> {
    let same = e.closed_by.as_deref() == Some(call.actor) && e.resolution.as_deref() == Some(words.as_str());
    (!same).then_some(Change::Close(words))
}

fn bounded(
    field: &'static str,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
    longest: TimeDelta,
) -> Result<DateTime<Utc>, ActError> {
    if until <= now {
        return Err(ActError::missing(field, "must be in the future"));
    }
    if until > now + longest {
        return Err(ActError::missing(field, format!("must be within {} hours", longest.num_hours())));
    }
    Ok(until)
}

/// Whoever has claimed it decides, until the claim runs out or is taken over.
pub(super) fn not_another(call: &Call<'_>, e: &Escalation, now: DateTime<Utc>) -> Result<(), ActError> {
    match e.claimed_by_another(call.actor, now).filter(|_| e.closed_at.is_none()) {
        Some((who, until)) => Err(ActError::Stale {
            who: who.to_owned(),
            what: format!("claimed it until {}; take it over first", until.format("%F %T UTC")),
            when: None,
            version: if call.act.handles() { e.version } else { e.intent_version.unwrap_or_default() },
        }),
        None => Ok(()),
    }
}

/// What only reports can be acknowledged; what asks must be answered.
fn acknowledgeable(e: &Escalation) -> Result<(), ActError> {
    let (Some(reason), state) = (Reason::parse(&e.reason), e.state.as_deref().and_then(State::parse)) else {
        return Ok(());
    };
    let answer = match (reason, state) {
        (Reason::DestinationParked, _) => "un-park the destination",
        (_, Some(State::InFlight)) => return Err(ActError::NotPossible(super::IN_FLIGHT.to_owned())),
        (Reason::ApprovalRequired | Reason::RepeatFlagged, Some(State::Held)) => "approve or reject it",
        (Reason::NoLookUp | Reason::Inconclusive | Reason::PoisonedKey | Reason::Conflict, Some(State::Unknown))
            if e.subject == "intent" =>
        {
            "say that it was sent or is absent, or close it without knowing"
        }
        (_, _) => return Ok(()),
    };
    Err(ActError::NotPossible(format!("{} asks for an answer: {answer}", e.reason)))
}

/// Who did what to an escalation meanwhile.
pub(super) fn stale(e: &Escalation, recent: &Recent) -> ActError {
    if let Some(closed_at) = e.closed_at {
        return ActError::Stale {
            who: e.closed_by.clone().unwrap_or_else(|| "somebody".to_owned()),
            what: format!("closed it: {}", e.resolution.as_deref().unwrap_or("-")),
            when: Some(closed_at),
            version: e.version,
        };
    }
    match recent.about(e.id) {
        Some((row, act)) => {
            ActError::Stale { who: row.actor.clone(), what: did(&act), when: Some(row.at), version: e.version }
        }
        None => ActError::Stale {
            who: e.claimed_by.clone().unwrap_or_else(|| "somebody".to_owned()),
            what: "changed it".to_owned(),
            when: None,
            version: e.version,
        },
    }
}

fn resolved(call: &Call<'_>, e: &Escalation, journal_id: Option<i64>, repeated: bool) -> Resolved {
    let mut words = match (e.closed_at, e.claimed_by.as_deref(), e.claimed_until) {
        (Some(_), _, _) => format!("closed: {}", e.resolution.as_deref().unwrap_or("-")),
        (None, Some(by), Some(until)) => format!("claimed by {by} until {}", until.format("%F %T UTC")),
        (None, _, _) => "open, claimed by nobody".to_owned(),
    };
    if e.closed_at.is_none() {
        if let Some(to) = &e.assigned_to {
            words.push_str(&format!(", assigned to {to}"));
        }
        if let Some(until) = e.snoozed_until {
            words.push_str(&format!(", out of the list until {}", until.format("%F %T UTC")));
        }
    }
    Resolved {
        act: call.act.verb(),
        repeated,
        intent_id: e.intent_id,
        state: e.state.as_deref().and_then(State::parse).map(State::as_str),
        version: e.intent_version,
        holds_effect: None,
        escalation_id: Some(e.id),
        escalation_version: Some(e.version),
        journal_id,
        counter_intent: None,
        binds_at: None,
        words,
        moved: false,
    }
}
