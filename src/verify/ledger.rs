//! The guarantees of the ledger itself. What is tried is rolled back, or cancelled before it is due.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{
    Findings, TENANT,
    house::{House, WITHDRAWN, mark, request},
};
use crate::{
    config::{destination::Destination, settings::Settings},
    domain::intent::ChannelKind,
    store::{
        self,
        destinations::Row,
        instance,
        requests::{self, EnqueueError, NewRequest, Receipt, Verdict},
        verify::Tamper,
    },
};

const SUBJECT: &str = "ledger";
/// So many calls at once.
const AT_ONCE: usize = 20;
/// Committed canaries become due then, and are cancelled long before. Their deadline is a moment later, so that what a killed
/// `verify` leaves is not sent.
const DUE_IN: TimeDelta = TimeDelta::minutes(15);

/// Where canaries of the ledger are addressed to, and what they say.
struct Address {
    destination: String,
    declared: Option<crate::config::canary::Canary>,
    channel: ChannelKind,
    /// The operator knows that this server forgets.
    forgets: bool,
}

impl Address {
    /// A new reference with its payload.
    fn canary(&self) -> anyhow::Result<(String, Value)> {
        let (date, random) = mark();
        if let Some(declared) = &self.declared {
            let filled = declared.fill(&date, random)?;
            return Ok((filled.reference, serde_json::from_str(&filled.payload)?));
        }
        let reference = format!("CANARY-{date}-{random:010}");
        let payload = match self.channel {
            ChannelKind::Webhook => json!({ "canary": reference }),
            ChannelKind::Smtp => json!({ "to": "canary@example.com", "subject": reference, "text": "canary" }),
            ChannelKind::Sms => json!({ "to": "+15005550006", "text": reference }),
        };
        Ok((reference, payload))
    }

    /// The payload with other content.
    fn other(&self, payload: &Value) -> Value {
        let mut other = payload.clone();
        let member = match self.channel {
            ChannelKind::Webhook => "settled_verify",
            ChannelKind::Smtp => "subject",
            ChannelKind::Sms => "text",
        };
        other[member] = json!("other content");
        other
    }
}

/// One that is published: with a canary of its own if there is one, without a pattern of references otherwise.
fn address(settings: &Settings, chosen: &[&Destination], published: &[Row]) -> Option<Address> {
    let there = |name: &str| published.iter().any(|row| row.name == name && row.withdrawn_at.is_none());
    let configured = || chosen.iter().copied().chain(&settings.destinations).filter(|d| there(&d.name));
    let address = |d: &Destination| Address {
        destination: d.name.clone(),
        declared: d.canary.clone(),
        channel: d.channel,
        forgets: settings.database.allow_fsync_off,
    };
    let with_canary = configured().find(|d| d.canary.is_some());
    with_canary.or_else(|| configured().find(|d| d.reference_pattern.is_none())).map(address)
}

pub(super) async fn prove(
    house: &House,
    settings: &Settings,
    chosen: &[&Destination],
    published: &[Row],
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let Some(address) = address(settings, chosen, published) else {
        let why = "not verified: a published destination is needed that has a canary or takes any reference";
        findings.unseen(SUBJECT, why);
        return Ok(());
    };
    let pool = &house.pool;
    let mut conn = pool.acquire().await?;
    store::producers::grant_destination(&mut conn, TENANT, &address.destination).await?;
    drop(conn);
    let proven = all(house, &address, findings).await;
    let mut conn = pool.acquire().await?;
    store::producers::revoke_destination(&mut conn, TENANT, &address.destination).await?;
    proven
}

async fn all(house: &House, address: &Address, findings: &mut Findings) -> anyhow::Result<()> {
    let pool = &house.pool;
    if let Err(refused) = verdicts(pool, address, findings).await? {
        findings.failed(SUBJECT, format!("a canary for {} was refused: {refused}", address.destination));
        return Ok(());
    }
    visibility(pool, address, findings).await?;
    at_once(pool, address, findings).await?;
    history(pool, house.sending.worker, address, findings).await
}

/// Calls, repeats and conflicts in one transaction, which is rolled back.
async fn verdicts(
    pool: &PgPool,
    address: &Address,
    findings: &mut Findings,
) -> anyhow::Result<Result<(), EnqueueError>> {
    let (reference, payload) = address.canary()?;
    let run = format!("verify-{reference}");
    let call = |payload: &Value, run: &str| request(&address.destination, &reference, &payload.to_string(), run);
    let mut tx = pool.begin().await?;
    let first = match requests::enqueue(&mut tx, &call(&payload, &run)).await {
        Ok(first) => first,
        Err(refused) => return Ok(Err(refused)),
    };
    let again = tried(&mut tx, &call(&payload, &run)).await?;
    let rows = store::verify::requests_of_run(&mut tx, TENANT, &run).await?;
    let replayed = verdict(&again, Verdict::Replayed, &first);
    findings.either(
        replayed && rows == 1,
        SUBJECT,
        "the same call twice is one row",
        seen(&again, &format!("{rows} row")),
    );
    let other = tried(&mut tx, &call(&address.other(&payload), &run)).await?;
    let differs = matches!(&other, Err(EnqueueError::Conflict { conflict, .. })
        if conflict.intent_id == first.intent_id && !conflict.pointers.is_empty());
    findings.either(differs, SUBJECT, "other content under the same call is a conflict", seen(&other, ""));
    let rival = tried(&mut tx, &call(&payload, &format!("{run}-rival"))).await?;
    let requested = verdict(&rival, Verdict::AlreadyRequested, &first);
    findings.either(requested, SUBJECT, "another call for the same effect makes no second one", seen(&rival, ""));
    durability(&mut tx, address.forgets, findings).await?;
    tx.rollback().await?;
    let mut conn = pool.acquire().await?;
    let left = store::verify::intents_named(&mut conn, TENANT, &reference.to_ascii_lowercase()).await?;
    findings.either(left == 0, SUBJECT, "a caller's rollback leaves nothing", format!("{left} rows after it"));
    Ok(Ok(()))
}

/// One call inside a savepoint, so that a refusal does not end the transaction.
async fn tried(conn: &mut PgConnection, call: &NewRequest) -> Result<Result<Receipt, EnqueueError>, sqlx::Error> {
    let mut inner = conn.begin().await?;
    let told = requests::enqueue(&mut inner, call).await;
    if told.is_ok() {
        inner.commit().await?
    } else {
        inner.rollback().await?
    }
    Ok(told)
}

fn verdict(told: &Result<Receipt, EnqueueError>, wanted: Verdict, first: &Receipt) -> bool {
    told.as_ref().is_ok_and(|told| told.verdict == wanted && told.intent_id == first.intent_id)
}

fn seen(told: &Result<Receipt, EnqueueError>, more: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!(", {more}") };
    match told {
        Ok(receipt) => format!("{}{more}", receipt.verdict.as_str()),
        Err(EnqueueError::Conflict { conflict, .. }) => format!("differs in {}{more}", conflict.pointers.join(", ")),
        Err(other) => format!("{other}{more}"),
    }
}

/// The commit of a transaction that enqueued, whatever the session says.
async fn durability(conn: &mut PgConnection, forgets: bool, findings: &mut Findings) -> anyhow::Result<()> {
    let commit = store::verify::synchronous_commit(conn).await?;
    let safety = instance::safety(conn).await?;
    let synchronous = matches!(commit.as_str(), "on" | "remote_apply");
    let standbys = if safety.synchronous_standbys.is_empty() {
        "no standby is waited for".to_owned()
    } else {
        format!("standbys that are waited for: {}", safety.synchronous_standbys)
    };
    let fsync = if safety.fsync { "on" } else { "off" };
    let text = format!("synchronous_commit = {commit}, fsync = {fsync}, {standbys}");
    if synchronous && !safety.fsync && forgets {
        findings
            .unseen(SUBJECT, format!("what is answered is on disk: not here ({text}); allow_fsync_off accepts that"));
    } else {
        findings.either(synchronous && safety.fsync, SUBJECT, "what is answered is on disk", text);
    }
    Ok(())
}

/// A committed canary that is not due and will not be.
fn late(address: &Address, reference: &str, payload: &Value, run: &str) -> NewRequest {
    let mut call = request(&address.destination, reference, &payload.to_string(), run);
    let due_at: DateTime<Utc> = Utc::now() + DUE_IN;
    call.options.due_at = Some(due_at);
    call.options.deadline = Some(due_at + TimeDelta::milliseconds(1));
    call
}

async fn visibility(pool: &PgPool, address: &Address, findings: &mut Findings) -> anyhow::Result<()> {
    let (reference, payload) = address.canary()?;
    let name = reference.to_ascii_lowercase();
    let mut other = pool.acquire().await?;
    let mut tx = pool.begin().await?;
    let receipt =
        requests::enqueue(&mut tx, &late(address, &reference, &payload, &format!("verify-{reference}"))).await?;
    let before = store::verify::intents_named(&mut other, TENANT, &name).await?;
    tx.commit().await?;
    let after = store::verify::intents_named(&mut other, TENANT, &name).await?;
    let text = format!("another session saw {before} rows before it and {after} after");
    findings.either(before == 0 && after == 1, SUBJECT, "an intent is there with its caller's commit", text);
    withdraw(&mut other, receipt.intent_id).await?;
    Ok(())
}

async fn at_once(pool: &PgPool, address: &Address, findings: &mut Findings) -> anyhow::Result<()> {
    let (reference, payload) = address.canary()?;
    let run = format!("verify-{reference}");
    let call = late(address, &reference, &payload, &run);
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (pool, call) = (pool.clone(), call.clone());
        calls.spawn(async move {
            let mut conn = pool.acquire().await?;
            requests::enqueue(&mut conn, &call).await
        });
    }
    let told: Vec<Result<Receipt, EnqueueError>> = calls.join_all().await;
    let count = |wanted| told.iter().flatten().filter(|receipt| receipt.verdict == wanted).count();
    let (accepted, replayed) = (count(Verdict::Accepted), count(Verdict::Replayed));
    let mut conn = pool.acquire().await?;
    let rows = store::verify::intents_named(&mut conn, TENANT, &reference.to_ascii_lowercase()).await?;
    findings.either(
        accepted == 1 && replayed == AT_ONCE - 1 && rows == 1,
        SUBJECT,
        "20 calls at once are one row",
        format!("{accepted} accepted, {replayed} replayed, {rows} row"),
    );
    let mut ids: Vec<Uuid> = told.iter().flatten().map(|receipt| receipt.intent_id).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        withdraw(&mut conn, id).await?;
    }
    Ok(())
}

async fn withdraw(conn: &mut PgConnection, id: Uuid) -> Result<(), EnqueueError> {
    requests::cancel(conn, id, WITHDRAWN, Some(TENANT), None).await.map(drop)
}

/// History refuses change: each try in a savepoint of a transaction that is rolled back.
async fn history(pool: &PgPool, worker: Uuid, address: &Address, findings: &mut Findings) -> anyhow::Result<()> {
    let (reference, payload) = address.canary()?;
    let mut tx = pool.begin().await?;
    let call = request(&address.destination, &reference, &payload.to_string(), &format!("verify-{reference}"));
    let id = requests::enqueue(&mut tx, &call).await?.intent_id;
    withdraw(&mut tx, id).await?;
    store::verify::pretend_attempt(&mut tx, id, worker).await?;
    let mut changed = Vec::new();
    for tamper in Tamper::ALL {
        let mut inner = tx.begin().await?;
        match tamper.attempt(&mut inner, id).await {
            Ok(rows) => changed.push(format!("{} changed {rows} rows", tamper.words())),
            Err(error) if code(&error).as_deref() == Some("ST450") => {}
            Err(error) => changed.push(format!("{} was stopped by something else: {error}", tamper.words())),
        }
        inner.rollback().await?;
    }
    tx.rollback().await?;
    let refused: Vec<&str> = Tamper::ALL.iter().map(|tamper| tamper.words()).collect();
    if changed.is_empty() {
        findings.verified(SUBJECT, format!("history and states refuse: {}", refused.join(", ")));
    }
    for one in changed {
        findings.failed(SUBJECT, format!("history can be changed: {one}"));
    }
    Ok(())
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|e| e.code()).map(|code| code.into_owned())
}
