//! `settled destinations`.

use serde::Serialize;

use super::{
    arguments::Destinations,
    asking,
    context::Context,
    exit::{Exit, Failure},
};
use crate::{
    channels,
    config::{check, destination::Destination},
    engine::reconciler::lag,
    look_up,
    store::{
        audits::{self, Measured},
        destinations::{self, Publication, PublishError, Published},
        listing::{self, PublishedDestination},
        paces,
    },
};

pub(super) async fn run(context: &Context, which: &Destinations) -> Result<Exit, Failure> {
    match which {
        Destinations::List => list(context).await,
        Destinations::Test { destination, unpark } => asking::test(context, destination, *unpark).await,
        Destinations::Ask { destination, intent } => asking::ask(context, destination, *intent).await,
        Destinations::Release { destination } => release(context, destination).await,
        Destinations::Publish => publish(context).await,
    }
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    published: PublishedDestination,
    in_doubt_in_words: String,
    effective: String,
    can_be_looked_up: bool,
    lag: Option<Lag>,
}

/// The declared lag beside the measured one.
#[derive(Serialize)]
struct Lag {
    declared_seconds: f64,
    #[serde(flatten)]
    measured: Measured,
    absence_suspended: bool,
}

async fn lag_of(conn: &mut sqlx::PgConnection, one: &PublishedDestination) -> Result<Option<Lag>, Failure> {
    let definition = serde_json::from_value::<Destination>(one.definition.clone());
    let Some(look_up) = definition.ok().and_then(|d| d.look_up) else { return Ok(None) };
    let window = lag::WINDOW.as_secs_f64();
    let measured = audits::measured(conn, &one.name, &one.generation, window, None).await?;
    Ok(Some(Lag {
        declared_seconds: look_up.lag.as_secs_f64(),
        absence_suspended: measured.invisible_for.is_some_and(|seconds| lag::exceeds(seconds, look_up.lag)),
        measured,
    }))
}

/// What is published, and in words what happens in doubt.
async fn list(context: &Context) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    let mut shown = Vec::new();
    for published in listing::destinations(&mut conn).await? {
        let lag = lag_of(&mut conn, &published).await?;
        shown.push(match serde_json::from_value::<Destination>(published.definition.clone()) {
            Ok(d) => Shown {
                published,
                in_doubt_in_words: check::doubt_in_words(&d),
                effective: check::effective(&d),
                can_be_looked_up: d.look_up.is_some(),
                lag,
            },
            Err(error) => Shown {
                published,
                in_doubt_in_words: format!("(published by another version: {error})"),
                effective: String::new(),
                can_be_looked_up: false,
                lag,
            },
        });
    }
    if context.out.json {
        context.out.rows(&shown, &[], |_| Vec::new())?;
        return Ok(Exit::Ok);
    }
    for one in &shown {
        context.out.value(&(), |()| words(one))?;
    }
    if shown.is_empty() {
        context.out.say("nothing is published; `settled destinations publish` does it");
    }
    Ok(Exit::Ok)
}

/// Lets a destination be sent to at once, whatever it asked for. What it answered 429 keeps its own time.
async fn release(context: &Context, name: &str) -> Result<Exit, Failure> {
    let mut conn = context.connect().await?;
    if !destinations::list(&mut conn).await?.iter().any(|d| d.name == *name) {
        return Err(Failure::new(Exit::NotFound, format!("destination {name} is not published; nothing was released")));
    }
    if !paces::release(&mut conn, name, &Context::actor()).await? {
        return Err(Failure::new(Exit::NotPossible, format!("{name} neither waits nor has a pace that was learned")));
    }
    let told = serde_json::json!({ "destination": name, "released": true });
    context.out.value(&told, |_| {
        format!(
            "{name} is sent to as configured; a 429 slows it down again, and what was answered 429 keeps its own time"
        )
    })?;
    Ok(Exit::Ok)
}

/// Publishes what is configured; each destination for itself, so that one that is refused does not hold up the others.
async fn publish(context: &Context) -> Result<Exit, Failure> {
    let settings = context.settings()?;
    let revision = settings.destinations_revision;
    let mut conn = context.connect().await?;
    let mut told = Vec::new();
    let mut exit = Exit::Ok;
    for config in &settings.destinations {
        let adapters = channels::registry::build(config).and_then(|_| look_up::registry::build(config));
        let look_up = adapters.map_err(|error| Failure::new(Exit::Config, format!("{}: {error}", config.name)))?;
        let publication = Publication {
            destination: config,
            revision,
            generation: &channels::registry::generation(config),
            asked_by_key: look_up.is_some_and(|l| l.abilities().shows_key),
        };
        let result = match destinations::publish(&mut conn, publication).await {
            Ok(Published::New) => "new".to_owned(),
            Ok(Published::Replaced) => "replaced".to_owned(),
            Ok(Published::Unchanged) => "unchanged".to_owned(),
            Ok(Published::Older { held }) => {
                exit = Exit::Conflict;
                format!("revision {held} is published already; raise destinations_revision above it")
            }
            Err(PublishError::Database(error)) => return Err(error.into()),
            Err(
                error @ (PublishError::SameRevision { .. }
                | PublishError::ChannelChanged(_)
                | PublishError::ScopeChanged { .. }
                | PublishError::Pattern(_)
                | PublishError::Definition(_)),
            ) => {
                exit = Exit::Conflict;
                error.to_string()
            }
        };
        told.push(Told { destination: config.name.clone(), revision, result });
    }
    context.out.rows(&told, &["DESTINATION", "REVISION", "RESULT"], |t| {
        vec![t.destination.clone(), t.revision.to_string(), t.result.clone()]
    })?;
    Ok(exit)
}

#[derive(Serialize)]
struct Told {
    destination: String,
    revision: i64,
    result: String,
}

fn lag_in_words(lag: &Lag) -> String {
    let declared = lag.declared_seconds;
    let mut text = match (lag.measured.p50, lag.measured.p999, lag.measured.longest) {
        (Some(p50), Some(p999), Some(longest)) => format!(
            "declared {declared} s; measured on {} sends of the last day: half within {p50:.1} s, 99.9 % within {p999:.1} s, all within {longest:.1} s",
            lag.measured.sends
        ),
        (Some(_) | None, Some(_) | None, Some(_) | None) => {
            format!("declared {declared} s; not measured within the last day")
        }
    };
    if let Some(seconds) = lag.measured.invisible_for.filter(|_| lag.absence_suspended) {
        text.push_str(&format!(
            "\n  ABSENCE IS NOT BELIEVED: a send was not visible after {seconds:.1} s, at least half of the declared lag"
        ));
    }
    text
}

fn words(shown: &Shown) -> String {
    let p = &shown.published;
    let mut text = format!(
        "{}  ({}, revision {}, generation {})\n  in doubt: {}\n  {}\n  {} waiting, {} in doubt\n",
        p.name,
        p.channel,
        p.revision,
        p.generation.get(..12).unwrap_or(&p.generation),
        shown.in_doubt_in_words,
        shown.effective,
        p.queued,
        p.in_doubt
    );
    if let Some(lag) = &shown.lag {
        text.push_str(&format!("  lag: {}\n", lag_in_words(lag)));
    }
    for (mark, reason) in [("PAUSED", &p.paused_reason), ("PARKED", &p.parked_reason)] {
        if let Some(reason) = reason {
            text.push_str(&format!("  {mark}: {reason}\n"));
        }
    }
    if let Some(at) = p.not_before {
        text.push_str(&format!("  WAITS until {}: it asked for a pause\n", at.format("%F %T UTC")));
    }
    if let Some(rate) = p.learned_a_second {
        text.push_str(&format!(
            "  SLOWED to {rate:.2} a second, since it said that more is too much; it grows by itself\n"
        ));
    }
    if let Some(at) = p.tested_at {
        let how = match &p.test_failed {
            Some(what) => format!("failed ({what}); until it passes it can only answer Found or Inconclusive"),
            None => "passed".to_owned(),
        };
        text.push_str(&format!("  self-test: {how}, {}\n", at.format("%F %R UTC")));
    } else if shown.can_be_looked_up {
        text.push_str("  self-test: never; `settled destinations test` asks a known and an impossible question\n");
    }
    if let Some(at) = p.withdrawn_at {
        text.push_str(&format!("  WITHDRAWN since {}: its intents are unserved\n", at.format("%F %R")));
    }
    text
}
