//! One destination: a clean send, what the look-up shows of it, a lost reply, and how many are there in the end.

use std::{sync::Arc, time::Duration};

use humantime::format_duration;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Findings,
    house::{House, mark, request},
    look::{self, Canary, Shown},
    lost,
};
use crate::{
    config::{canary::Filled, check::doubt_in_words},
    domain::{
        outcome::Outcome,
        question::{AccountSeen, Seen},
    },
    engine::{fleet::Served, single},
    store::{self, attempts::AttemptRow},
};

pub(super) async fn prove(
    house: &mut House,
    served: &Arc<Served>,
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let name = served.config.name.clone();
    let Some(first) = clean(house, served, wait, findings).await? else { return Ok(()) };
    let mut canaries = vec![first];
    let trusted = match &served.look_up {
        Some(_) => found(house, served, &canaries[0], wait, findings).await?,
        None => true,
    };
    if !lost::can_be_proven(&served.config) {
        let words = doubt_in_words(&served.config);
        let why =
            if served.look_up.is_some() { "it is not asked by itself" } else { "it keeps no keys and cannot be asked" };
        findings
            .unseen(&name, format!("a lost reply: whether it arrives twice cannot be seen: {why}; in doubt: {words}"));
    } else if !trusted {
        findings.unseen(&name, "a lost reply: not tried, since the look-up cannot tell");
    } else if let Some(second) = lost::reply(house, served, wait, findings).await? {
        canaries.push(second);
    }
    if served.look_up.is_some() && trusted {
        exactly_one(house, served, &canaries, wait, findings).await?;
    }
    Ok(())
}

/// A new canary of this destination.
pub(super) fn filled(served: &Served) -> anyhow::Result<Filled> {
    let (date, random) = mark();
    let Some(canary) = &served.config.canary else { anyhow::bail!("{} has no canary", served.config.name) };
    Ok(canary.fill(&date, random)?)
}

/// Sent like any other: by a daemon that serves it, else by us.
async fn clean(
    house: &mut House,
    served: &Arc<Served>,
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<Option<Canary>> {
    let name = &served.config.name;
    let Filled { reference, payload } = filled(served)?;
    let call = request(name, &reference, &payload, &format!("verify-{reference}"));
    let mut conn = house.pool.acquire().await?;
    let receipt = match store::requests::enqueue(&mut conn, &call).await {
        Ok(receipt) => receipt,
        Err(refused) => {
            findings.failed(name, format!("a clean send: the ledger refused the canary: {refused}"));
            return Ok(None);
        }
    };
    drop(conn);
    let (id, until) = (receipt.intent_id, Instant::now() + wait);
    let state = sent(house, served, id, until).await?;
    let attempts = look::attempts(&house.pool, id).await?;
    let by = match attempts.last() {
        Some(attempt) if attempt.worker == house.sending.worker => "by verify itself, as no daemon took it",
        Some(_) => "by a running daemon",
        None => "by nobody",
    };
    let mut conn = house.pool.acquire().await?;
    let standing = store::verify::standing(&mut conn, id).await?;
    drop(conn);
    if state != "sent" {
        let why = attempts.last().map_or_else(|| "it was not attempted".to_owned(), ended_in_words);
        findings.failed(name, format!("a clean send: {reference} ({id}) is {state}, claimed {by}: {why}"));
        return Ok(None);
    }
    let provider = standing.provider_id.as_deref().unwrap_or("none in its reply");
    findings.verified(name, format!("a clean send: {reference} was sent {by}; its name there: {provider}"));
    findings.either(
        attempts.len() == 1,
        name,
        "one attempt for one send",
        format!("{} attempts in the ledger", attempts.len()),
    );
    Ok(Some(Canary { id, reference, over: Instant::now() }))
}

/// Waits until it is settled; sends it where no daemon takes it. Gives its state.
async fn sent(house: &mut House, served: &Arc<Served>, id: Uuid, until: Instant) -> anyhow::Result<String> {
    let begun = Instant::now();
    // A daemon that is alive may serve other destinations only.
    let patience = if house.daemons > 0 { until.duration_since(begun) / 2 } else { Duration::ZERO };
    let mut ours = false;
    loop {
        let mut conn = house.pool.acquire().await?;
        let state = store::verify::standing(&mut conn, id).await?.state;
        drop(conn);
        let waits = state == "pending" && look::attempts(&house.pool, id).await?.is_empty();
        if waits && !ours && begun.elapsed() >= patience && !house.stop.is_cancelled() {
            if let Some(claim) = single::claim(&house.sending, served, id).await? {
                single::send(&house.sending, served, claim).await;
                house.settle().await;
                ours = true;
                continue;
            }
        } else if !waits && state != "in_flight" {
            return Ok(state);
        }
        if !house.glance(until).await {
            return Ok(state);
        }
    }
}

/// How an attempt ended, for people; never what was sent.
pub(super) fn ended_in_words(attempt: &AttemptRow) -> String {
    let Some(ended) = &attempt.ended else { return "its attempt is open".to_owned() };
    let code = ended.report.code.map_or_else(String::new, |code| format!(", code {code}"));
    let cause = ended.report.cause.as_ref().map_or_else(String::new, |cause| format!(", {cause}"));
    let word = match &ended.outcome {
        Outcome::Sent { .. } => "sent",
        Outcome::Refused { .. } => "refused",
        Outcome::NotSent { .. } => "not sent",
        Outcome::Ambiguous { .. } => "in doubt",
    };
    format!("attempt {} ended {word}{code}{cause}", attempt.attempt.number)
}

/// The known one is found, a made-up one is not, by the right account. Whether the look-up can be trusted in what follows.
async fn found(
    house: &House,
    served: &Served,
    canary: &Canary,
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<bool> {
    let name = &served.config.name;
    let (Some(look_up), Some(declared)) = (&served.look_up, &served.config.look_up) else { return Ok(false) };
    let shown = look::until_there(house, served, &**look_up, canary, Instant::now() + wait).await?;
    let lag = format_duration(declared.lag);
    let waited = format_duration(Duration::from_millis(u64::try_from(shown.after.as_millis()).unwrap_or(u64::MAX)));
    let there = !shown.hits.is_empty();
    if there && shown.missing_after > declared.lag {
        findings.failed(
            name,
            format!("the look-up finds it: only after {waited}, and the declared lag is {lag}: absence would be believed too early"),
        );
    } else if there {
        let by = if look_up.abilities().shows_key { "under its key" } else { "by its reference; it shows no keys" };
        findings.verified(
            name,
            format!(
                "the look-up finds it: {by}, {waited} after it was sent (declared lag {lag}): {}",
                look::names(&shown.hits)
            ),
        );
    } else if shown.after < declared.lag {
        findings.unseen(
            name,
            format!(
                "the look-up finds it: not within {waited}; the declared lag is {lag}: --wait {lag} or longer{}",
                unclear(&shown)
            ),
        );
    } else {
        findings.failed(
            name,
            format!("the look-up finds it: not within {waited}; the declared lag is {lag}{}", unclear(&shown)),
        );
    }
    let made_up = matches!(shown.made_up, Seen::Nothing);
    let text = match &shown.made_up {
        Seen::Nothing => "everything was read, and it is not there".to_owned(),
        Seen::Hits { hits } => format!("it found {}", look::names(hits)),
        Seen::CannotTell { why } => format!("it cannot tell: {why}"),
    };
    findings.either(made_up, name, "a made-up name is not found", text);
    match &shown.account {
        AccountSeen::Matches { identity } => {
            findings.verified(name, format!("the account that is asked is ours: {identity}"))
        }
        AccountSeen::Differs { seen } => {
            findings.failed(name, format!("the account that is asked is ours: it is {seen}"))
        }
        AccountSeen::NotChecked => {
            findings.unseen(name, "the account that is asked is not checked, so absence is never believed");
        }
    }
    Ok(there && made_up)
}

fn unclear(shown: &Shown) -> String {
    shown.unclear.as_ref().map_or_else(String::new, |why| format!("; it cannot tell: {why}"))
}

/// After the lag: one effect for each canary, and no attempt that is not ours.
async fn exactly_one(
    house: &House,
    served: &Served,
    canaries: &[Canary],
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let name = &served.config.name;
    let (Some(look_up), Some(declared)) = (&served.look_up, &served.config.look_up) else { return Ok(()) };
    let last = canaries.iter().map(|canary| canary.over).max().unwrap_or_else(Instant::now);
    // A copy may show later than the first one: only after the lag is it known that there is none.
    let (ripe, until) = (last + declared.lag, Instant::now() + wait);
    while Instant::now() < ripe && house.patience(until.min(ripe), Duration::from_secs(1)).await {}
    let early = Instant::now() < ripe;
    for canary in canaries {
        let shown =
            look::until_there(house, served, &**look_up, canary, Instant::now() + Duration::from_secs(5)).await?;
        let reference = &canary.reference;
        let (count, lag) = (shown.hits.len(), format_duration(declared.lag));
        if count == 1 && early {
            findings.unseen(name, format!("exactly one effect: one of {reference} so far; a copy may show until the declared lag of {lag} is over: --wait {lag} or longer"));
        } else {
            findings.either(
                count == 1,
                name,
                "exactly one effect",
                format!("{count} of {reference}: {}{}", look::names(&shown.hits), unclear(&shown)),
            );
        }
        let marks: Vec<i32> = shown.hits.iter().filter_map(|hit| hit.attempt).collect();
        if let Some(seen) = marks.iter().max() {
            let ours = i32::try_from(look::attempts(&house.pool, canary.id).await?.len()).unwrap_or(i32::MAX);
            let text = format!("attempt {seen} was seen there, and {ours} were made");
            findings.either(*seen <= ours, name, "no attempt that is not ours", text);
        }
    }
    Ok(())
}
