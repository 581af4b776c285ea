//! A lost reply: a canary is sent, and its reply is thrown away before anybody reads it, as if the process had died there. The
//! doubt is then ended by asking or by a replay, never by a second send.

use std::{sync::Arc, time::Duration};

use humantime::format_duration;
use tokio::time::Instant;

use super::{
    Findings,
    destination::{ended_in_words, filled},
    house::{House, request},
    look::{self, Canary},
};
use crate::{
    config::{canary::Filled, destination::Destination},
    domain::{
        evidence::AttemptKind,
        intent::InDoubt,
        outcome::{DoubtKind, Outcome, Stage},
    },
    engine::{
        fleet::Served,
        results::Finished,
        single::{self, NotClaimed},
    },
    store::{self, attempts::AttemptRow},
};

/// First and longest pause between two questions.
const PAUSES: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(15));

/// A doubt there is ended without a person.
pub(super) fn can_be_proven(config: &Destination) -> bool {
    config.can_be_asked() && config.doubt_policy() == InDoubt::Ask
}

pub(super) async fn reply(
    house: &mut House,
    served: &Arc<Served>,
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<Option<Canary>> {
    let name = &served.config.name;
    let Some((canary, real)) = thrown_away(house, served, wait, findings).await? else { return Ok(None) };
    let state = settled(house, served, &canary, Instant::now() + wait).await?;
    let attempts = look::attempts(&house.pool, canary.id).await?;
    told(served, &canary, &state, &attempts, wait, findings);
    if state != "sent" {
        // We know how it ended, after all: evidence is never refused.
        house.write(vec![real]).await;
    } else if served.config.replay.is_some() {
        repeated(served, &attempts, findings);
    }
    let mut conn = house.pool.acquire().await?;
    let marks = store::verify::standing(&mut conn, canary.id).await?.marks;
    if !marks.is_empty() {
        findings.failed(name, format!("a lost reply: {} is marked {}", canary.reference, marks.join(", ")));
    }
    Ok(Some(Canary { over: Instant::now(), ..canary }))
}

/// Sends one and records it as in doubt; gives what its reply really was.
async fn thrown_away(
    house: &mut House,
    served: &Arc<Served>,
    wait: Duration,
    findings: &mut Findings,
) -> anyhow::Result<Option<(Canary, Finished)>> {
    let name = &served.config.name;
    let Filled { reference, payload } = filled(served)?;
    let call = request(name, &reference, &payload, &format!("verify-{reference}"));
    let until = Instant::now() + wait;
    let (receipt, claim) = loop {
        match single::admit_and_claim(&house.sending, served, &call).await {
            Ok(claimed) => break claimed,
            Err(NotClaimed::Stopped) if house.patience(until, Duration::from_secs(1)).await => {}
            Err(error) => {
                findings.unseen(name, format!("a lost reply: not tried: {error}"));
                return Ok(None);
            }
        }
    };
    single::send(&house.sending, served, claim).await;
    let Some(real) = house.ended().await.pop() else {
        findings.failed(name, format!("a lost reply: the send of {reference} gave no result"));
        return Ok(None);
    };
    if !matches!(real.ended.outcome, Outcome::Sent { .. }) {
        house.write(vec![real]).await;
        let attempts = look::attempts(&house.pool, receipt.intent_id).await?;
        let why = attempts.last().map_or_else(String::new, ended_in_words);
        findings.failed(name, format!("a lost reply: {reference} was not taken, so there was none to lose: {why}"));
        return Ok(None);
    }
    house.write(vec![without_reply(real.clone())]).await;
    Ok(Some((Canary { id: receipt.intent_id, reference, over: Instant::now() }, real)))
}

/// What would be known of it if the process had ended after the last byte.
fn without_reply(mut finished: Finished) -> Finished {
    finished.ended.outcome = Outcome::Ambiguous { doubt: DoubtKind::Interrupted };
    let report = &mut finished.ended.report;
    report.stage = Stage::Handed;
    report.code = None;
    report.excerpt = None;
    report.replayed = false;
    report.cause = Some("verify threw the reply away".to_owned());
    finished
}

/// Has it asked about until it is no longer in doubt or the time is over; a daemon may be faster. Gives its state.
async fn settled(house: &mut House, served: &Served, canary: &Canary, until: Instant) -> anyhow::Result<String> {
    let mut pause = PAUSES.0;
    loop {
        let mut conn = house.pool.acquire().await?;
        let state = store::verify::standing(&mut conn, canary.id).await?.state;
        drop(conn);
        if !matches!(state.as_str(), "unknown" | "in_flight") {
            return Ok(state);
        }
        if state == "unknown" && house.reconciler.ask_about(&served.config.name, canary.id).await? {
            house.settle().await;
            let mut conn = house.pool.acquire().await?;
            if store::verify::standing(&mut conn, canary.id).await?.state == "sent" {
                continue;
            }
        }
        if !house.patience(until, pause).await {
            return Ok(state);
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn told(
    served: &Served,
    canary: &Canary,
    state: &str,
    attempts: &[AttemptRow],
    wait: Duration,
    findings: &mut Findings,
) {
    let name = &served.config.name;
    let sends = attempts.iter().filter(|a| a.attempt.kind == AttemptKind::Send).count();
    let replays = attempts.len() - sends;
    let reference = &canary.reference;
    if sends != 1 {
        findings.failed(name, format!("a lost reply: {reference} was sent {sends} times; it is {state}"));
        return;
    }
    let how = if replays > 0 { "by repeating it under its key" } else { "by asking" };
    let lag = served.config.look_up.as_ref().map(|declared| declared.lag);
    match (state, lag) {
        ("sent", _) => {
            let after = format_duration(Duration::from_secs(canary.over.elapsed().as_secs()));
            findings.verified(
                name,
                format!("a lost reply: {reference} was in doubt and is sent, {how}, {after} later; it was sent once"),
            );
        }
        (_, Some(lag)) if lag > wait => {
            let lag = format_duration(lag);
            findings.unseen(
                name,
                format!("a lost reply: {reference} is {state}; the declared lag is {lag}: --wait {lag} or longer"),
            );
        }
        (_, _) => findings.failed(name, format!("a lost reply: {reference} ({}) is still {state}", canary.id)),
    }
}

/// The same bytes under the same key: how the downstream took them. Whether they made a second effect is counted at the end.
fn repeated(served: &Served, attempts: &[AttemptRow], findings: &mut Findings) {
    let name = &served.config.name;
    let replay = attempts.iter().rfind(|a| a.attempt.kind == AttemptKind::Replay);
    let Some(ended) = replay.and_then(|replay| replay.ended.as_ref()) else {
        findings.unseen(name, "a refused repeat: not verified: the doubt was ended before a replay was made");
        return;
    };
    let marked = if ended.report.replayed { ", marked as a replay" } else { "" };
    let code = ended.report.code.map_or_else(String::new, |code| format!(" {code}"));
    let text = format!("a refused repeat: the same bytes under the same key were answered{code}{marked}");
    if served.look_up.is_some() {
        findings.told(name, format!("{text}; counted below"));
    } else {
        findings.unseen(name, format!("{text}; whether they made a second effect cannot be seen: it has no look_up"));
    }
}
