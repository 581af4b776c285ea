//! `settled destinations test` and `ask`: questions put by hand. They move no intent; the result of a test is remembered.

use chrono::{TimeDelta, Utc};
use rand::Rng;
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    context::Context,
    exit::{Exit, Failure},
};
use crate::{
    config::destination::Destination,
    domain::{
        question::{AccountSeen, Answer, Probe, Question, Role, Seen},
        reason::Reason,
    },
    look_up::{LookUp, registry},
    store::{
        attempts, destinations, escalations, generations, intents,
        journal::{self, Entry},
        witnesses::{self, Witness},
    },
    telemetry::bar::Bar,
};

/// What a test found.
#[derive(Serialize)]
struct Tested {
    destination: String,
    passed: bool,
    checks: Vec<Check>,
    /// It was parked and is no longer.
    unparked: bool,
    answer: Answer,
}

#[derive(Serialize)]
struct Check {
    check: &'static str,
    passed: bool,
    found: String,
}

/// Asks for a send that is known to have arrived, and for a name that cannot exist. A failure holds until a test passes:
/// the generation is believed only when it says Found.
pub(super) async fn test(context: &Context, name: &str, unpark: bool) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let (config, generation) = published(&mut conn, name).await?;
    let look_up = asker(&config, name)?;
    let now = Utc::now();
    // Old enough to be visible, young enough to be asked about.
    let (lag, horizon) = config.look_up.as_ref().map_or((TimeDelta::zero(), TimeDelta::zero()), |l| {
        (TimeDelta::from_std(l.lag).unwrap_or_default(), TimeDelta::from_std(l.horizon).unwrap_or_default())
    });
    let known = witnesses::elder(&mut conn, name, &generation, now - lag, now - horizon, None).await?;
    let Some(known) = known else {
        return Err(Failure::new(
            Exit::NotFound,
            format!(
                "{name} has no send of this generation that is known to have arrived and is older than its lag; send one first"
            ),
        ));
    };
    let known = probe_of(&known);
    let made_up = random_like(known.spelled.as_ref().unwrap_or(&known.reference));
    let impossible = Probe {
        role: Role::Impossible,
        key: random_like(&known.key),
        reference: made_up.to_ascii_lowercase(),
        spelled: Some(made_up),
        ..known.clone()
    };
    let bar = Bar::spinning(format!("asking {name}"), context.out.json);
    let answer = look_up.ask(&Question { probes: vec![known.clone(), impossible], now }).await;
    drop(bar);
    let checks = vec![
        Check {
            check: "the known one is found",
            passed: found(answer.seen.first(), &known, look_up.abilities().shows_key),
            found: words(answer.seen.first()),
        },
        Check {
            check: "the impossible one is not",
            passed: matches!(answer.seen.get(1), Some(Seen::Nothing)),
            found: words(answer.seen.get(1)),
        },
        Check {
            check: "the account is ours",
            passed: matches!(answer.account, AccountSeen::Matches { .. }),
            found: account(&answer.account),
        },
    ];
    let passed = checks.iter().all(|c| c.passed);
    let failed: Vec<String> =
        checks.iter().filter(|c| !c.passed).map(|c| format!("not so: {}; {}", c.check, c.found)).collect();
    let failed = (!passed).then(|| failed.join("; "));
    generations::tested(&mut conn, name, &generation, failed.as_deref()).await?;
    let unparked = passed && unpark && unpark_it(&mut conn, name).await?;
    let tested = Tested { destination: name.to_owned(), passed, checks, unparked, answer };
    context.out.value(&tested, |t| {
        let mut text = String::new();
        for c in &t.checks {
            text.push_str(&format!("{}  {:<26}  {}\n", if c.passed { "ok  " } else { "FAIL" }, c.check, c.found));
        }
        if t.unparked {
            text.push_str(&format!("{} was parked; it is sent to again\n", t.destination));
        }
        text
    })?;
    if passed { Ok(Exit::Ok) } else { Ok(Exit::Failed) }
}

/// Takes it out of parking and answers the question to people, in one transaction. False where it was not parked.
async fn unpark_it(conn: &mut PgConnection, name: &str) -> Result<bool, Failure> {
    let actor = Context::actor();
    let mut tx = sqlx::Connection::begin(conn).await?;
    if !generations::unpark(&mut tx, name).await? {
        return Ok(false);
    }
    let words = "un-parked after a self-test that passed";
    escalations::close_destination(&mut tx, name, Reason::DestinationParked, &actor, words).await?;
    let entry = Entry {
        intent_id: None,
        at: None,
        kind: "administration",
        attempt: None,
        actor: &actor,
        data: serde_json::json!({ "act": "unpark", "destination": name, "reason": words }),
    };
    journal::append(&mut tx, &entry).await?;
    tx.commit().await?;
    Ok(true)
}

/// Asks about one intent, and shows the answer as it came.
pub(super) async fn ask(context: &Context, name: &str, intent: Uuid) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let missing = || Failure::new(Exit::NotFound, format!("there is no intent {intent} for destination {name}"));
    let mut tx = sqlx::Connection::begin(&mut conn).await?;
    let row = intents::lock(&mut tx, intent, None).await?.filter(|i| i.destination == name).ok_or_else(missing)?;
    let newest = attempts::of(&mut tx, intent).await?.pop();
    tx.rollback().await?;
    let Some(newest) = newest else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("intent {intent} was never attempted; there is nothing to ask"),
        ));
    };
    let definition = generations::definition(&mut conn, name, &newest.generation).await?.ok_or_else(missing)?;
    let config: Destination = serde_json::from_value(definition)?;
    let look_up = asker(&config, name)?;
    let spelled = intents::given_reference(&mut conn, intent).await?;
    let probe = Probe {
        role: Role::Subject,
        key: row.key.clone().unwrap_or_default(),
        reference: row.reference.clone(),
        spelled,
        occurrence: row.occurrence,
        recipient: row.recipient.clone(),
        sent_from: newest.claimed_at,
        sent_until: newest.closure_at.unwrap_or(newest.lease_until),
    };
    let answer = look_up.ask(&Question { probes: vec![probe], now: Utc::now() }).await;
    context.out.value(&answer, |answer| {
        format!(
            "{}\n  asked: {}\n  account: {}\n  pages: {}\n  an answer alone settles nothing; the reconciler weighs it with its controls",
            words(answer.seen.first()),
            answer.query,
            account(&answer.account),
            answer.pages
        )
    })?;
    Ok(Exit::Ok)
}

async fn published(conn: &mut PgConnection, name: &str) -> Result<(Destination, String), Failure> {
    let row = destinations::list(conn)
        .await?
        .into_iter()
        .find(|row| row.name == name)
        .ok_or_else(|| Failure::new(Exit::NotFound, format!("destination {name} is not published")))?;
    Ok((serde_json::from_value(row.definition)?, row.generation))
}

fn asker(config: &Destination, name: &str) -> Result<std::sync::Arc<dyn LookUp>, Failure> {
    registry::build(config)
        .map_err(|error| Failure::new(Exit::Config, format!("{name}: {error}")))?
        .ok_or_else(|| Failure::new(Exit::NotFound, format!("{name} has no look_up; it cannot be asked")))
}

fn probe_of(w: &Witness) -> Probe {
    Probe {
        role: Role::Elder,
        key: w.key.clone(),
        reference: w.reference.to_ascii_lowercase(),
        spelled: Some(w.reference.clone()),
        occurrence: w.occurrence,
        recipient: w.recipient.clone(),
        sent_from: w.started_at,
        sent_until: w.ended_at,
    }
}

/// A name of the same shape that nobody has.
fn random_like(name: &str) -> String {
    let mut bytes = vec![0u8; name.len()];
    rand::rng().fill_bytes(&mut bytes);
    name.chars()
        .zip(bytes)
        .map(|(c, byte)| match c {
            '0'..='9' => char::from(b'0' + byte % 10),
            'a'..='f' => char::from(b'a' + byte % 6),
            'g'..='z' => char::from(b'g' + byte % 20),
            'A'..='Z' => char::from(b'A' + byte % 26),
            other => other,
        })
        .collect()
}

fn found(seen: Option<&Seen>, probe: &Probe, by_key: bool) -> bool {
    match seen {
        Some(Seen::Hits { hits }) => hits.iter().any(|hit| !by_key || hit.key.as_deref() == Some(&probe.key)),
        Some(Seen::Nothing | Seen::CannotTell { .. }) | None => false,
    }
}

fn words(seen: Option<&Seen>) -> String {
    match seen {
        Some(Seen::Hits { hits }) => {
            let ids: Vec<&str> = hits.iter().map(|hit| hit.id.as_deref().unwrap_or("(no id)")).collect();
            format!("{} found: {}", hits.len(), ids.join(", "))
        }
        Some(Seen::Nothing) => "everything was read, and it is not there".to_owned(),
        Some(Seen::CannotTell { why }) => format!("cannot tell: {why}"),
        None => "no answer".to_owned(),
    }
}

fn account(seen: &AccountSeen) -> String {
    match seen {
        AccountSeen::Matches { identity } => identity.clone(),
        AccountSeen::Differs { seen } => format!("another one: {seen}"),
        AccountSeen::NotChecked => "not checked; absence is never believed".to_owned(),
    }
}
