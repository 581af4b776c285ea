//! `settled verify`: the guarantees, proven against the operator's own ledger and destinations by canaries.
//!
//! A canary is an intent of the reserved tenant, with a reference that no business has. The ledger's own guarantees are tried in
//! transactions that are rolled back, or with intents that are cancelled before they are due. A destination is sent one canary as
//! any other intent, and one whose reply is thrown away, so that the doubt is ended by the same parts that end real ones. What
//! cannot be seen is said, not assumed.

mod destination;
mod findings;
mod house;
mod ledger;
mod look;
mod lost;
mod rights;

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

pub use findings::{Findings, Sum};
use house::House;

use crate::{
    config::{
        check::{doubt_in_words, effective},
        destination::Destination,
        settings::Settings,
    },
    store::{self, destinations::Row},
};

/// Whose canaries are. Reserved: no role can be granted it.
pub const TENANT: &str = "settled-canary";

/// What is to be proven.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// Only these destinations.
    pub destinations: Vec<String>,
    /// All that are configured.
    pub all: bool,
    /// The ledger alone: nothing is sent.
    pub ledger_only: bool,
    /// How long each canary is waited for.
    pub wait: Duration,
    /// What the API answered when a producer's token tried to decide; `None` where that was not tried.
    pub producer_decides: Option<u16>,
}

/// There is no such destination in the configuration.
#[derive(Debug, thiserror::Error)]
#[error("destination {0} is not configured")]
pub struct NotConfigured(pub String);

/// The destinations that are meant.
///
/// # Errors
/// [`NotConfigured`].
pub fn chosen<'a>(settings: &'a Settings, arguments: &Arguments) -> Result<Vec<&'a Destination>, NotConfigured> {
    if arguments.ledger_only {
        return Ok(Vec::new());
    }
    if arguments.all {
        return Ok(settings.destinations.iter().collect());
    }
    let named = |name: &String| {
        settings.destinations.iter().find(|d| d.name == *name).ok_or_else(|| NotConfigured(name.clone()))
    };
    arguments.destinations.iter().map(named).collect()
}

/// What would be sent to whom, and what is written, one line each.
///
/// # Errors
/// [`NotConfigured`].
pub fn plan(settings: &Settings, arguments: &Arguments) -> Result<Vec<String>, NotConfigured> {
    let mut lines =
        vec!["the ledger: canaries that are rolled back, or cancelled before they are due; nothing is sent".to_owned()];
    for destination in chosen(settings, arguments)? {
        let name = &destination.name;
        let Some(canary) = &destination.canary else {
            lines.push(format!("{name}: nothing; it has no canary"));
            continue;
        };
        let to = canary.recipient().map_or_else(String::new, |to| format!(" to {to}"));
        let what = if lost::can_be_proven(destination) {
            "2 canaries, one of them with its reply thrown away"
        } else {
            "1 canary"
        };
        let twice = destination.if_twice.as_ref().map_or_else(String::new, |words| format!(" (if twice: {words})"));
        let again = if destination.replay.is_some() && lost::can_be_proven(destination) {
            "; that one is repeated under its key"
        } else {
            ""
        };
        lines.push(format!("{name} ({}): {what}{to}{again}{twice}", destination.channel.as_str()));
    }
    Ok(lines)
}

/// Proves what can be proven. Ends early, with nothing left behind, when `stop` is cancelled.
///
/// # Errors
/// Where nothing can be proven at all: configuration, database, a database of somebody else.
pub async fn run(
    settings: &Settings,
    url: &str,
    arguments: &Arguments,
    stop: CancellationToken,
) -> anyhow::Result<Findings> {
    let chosen = chosen(settings, arguments)?;
    let mut findings = Findings::default();
    let mut house = House::open(settings, url, &chosen, stop).await?;
    let proven = prove(&mut house, settings, arguments, &chosen, &mut findings).await;
    let closed = house.close(&mut findings).await;
    proven?;
    closed.context("what was left behind could not be looked at")?;
    Ok(findings)
}

async fn prove(
    house: &mut House,
    settings: &Settings,
    arguments: &Arguments,
    chosen: &[&Destination],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let mut conn = house.pool.acquire().await?;
    let published = store::destinations::list(&mut conn).await?;
    drop(conn);
    rights::look(&house.pool, arguments.producer_decides, findings).await?;
    ledger::prove(house, settings, chosen, &published, findings).await?;
    for config in chosen {
        if house.stop.is_cancelled() {
            findings.unseen(&config.name, "not verified: stopped");
            continue;
        }
        one(house, config, &published, arguments.wait, findings).await?;
    }
    Ok(())
}

/// One destination: what keeps it from being proven, or the proof.
async fn one(
    house: &mut House,
    config: &Destination,
    published: &[Row],
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let name = &config.name;
    findings.told(name, format!("{}; in doubt: {}", effective(config), doubt_in_words(config)));
    let Some(served) = house.sending.fleet.get(name).map(Arc::clone) else { return Ok(()) };
    if let Some(why) = house.hindered(config, &served.generation, published).await? {
        findings.unseen(name, format!("not verified: {why}"));
        return Ok(());
    }
    let mut conn = house.pool.acquire().await?;
    store::producers::grant_destination(&mut conn, TENANT, name).await?;
    drop(conn);
    let proven = destination::prove(house, &served, wait, findings).await;
    let mut conn = house.pool.acquire().await?;
    store::producers::revoke_destination(&mut conn, TENANT, name).await?;
    proven
}
