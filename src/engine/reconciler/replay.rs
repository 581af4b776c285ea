//! Replay: the same bytes under the same key, while the downstream still keeps it. An attempt with token, lease and
//! self-stop like any other; outside the key's life it would be a second send.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Doubt;
use crate::{
    config::destination::Destination,
    domain::{evidence::AttemptKind, intent::Outgoing, state::State},
    engine::{
        claiming,
        dispatcher::{self, Claim, Sending},
        folding::{Case, after},
        placement,
        self_stop::Allowance,
    },
    store::{self, attempts::Opening, error::StoreError},
};

/// What came of it.
pub(super) enum Replay {
    /// It is under way.
    Started,
    /// Somebody moved the intent meanwhile.
    Moved,
    /// No free slot, or nothing must be sent there just now.
    NotNow,
    /// Never (again): the next means.
    NotPossible,
}

/// Starts a replay of the doubtful attempt, where the rules allow one.
pub(super) async fn start(sending: &Sending, doubt: &Doubt, config: &Destination) -> Result<Replay, StoreError> {
    if sending.stopping.is_cancelled() {
        return Ok(Replay::NotNow);
    }
    let Some(served) = sending.fleet.get(&doubt.case.intent.destination) else { return Ok(Replay::NotPossible) };
    // The same key at another downstream is simply a new effect.
    if config.replay.is_none()
        || !served.policy().replays
        || served.generation != doubt.generation
        || placement::poisoned(&doubt.case)
    {
        return Ok(Replay::NotPossible);
    }
    let Some(original) = doubt.case.attempt(doubt.number) else { return Ok(Replay::NotPossible) };
    let first = doubt.case.attempts.iter().find(|a| a.attempt.kind == AttemptKind::Send);
    let Some(replay_until) = first.and_then(|first| first.replay_until) else { return Ok(Replay::NotPossible) };
    let now = doubt.case.intent.now;
    let too_late =
        |now: DateTime<Utc>| (replay_until - now).to_std().unwrap_or_default() < served.config.worst_send_time();
    // It may be the first that arrives, so the deadline is over for it as for any other.
    if too_late(now) || doubt.case.intent.deadline.is_some_and(|deadline| deadline <= now) {
        return Ok(Replay::NotPossible);
    }
    let Ok(slot) = Arc::clone(&served.slots).try_acquire_owned() else { return Ok(Replay::NotNow) };
    let allowance = Allowance::before_claim(&*sending.clock, served.config.lease());
    let mut tx = sending.pool.begin().await?;
    let Some(entered) = sending.watch.enter(&mut tx).await? else { return Ok(Replay::NotNow) };
    let Some(case) = Case::lock(&mut tx, doubt.case.intent.id, sending.clock.sql_now()).await? else {
        return Ok(Replay::Moved);
    };
    let now = case.intent.now;
    if doubt.moved(&case) || too_late(now) {
        return Ok(Replay::Moved);
    }
    if store::generations::is_stopped(&mut tx, &case.intent.destination, &case.intent.tenant).await? {
        return Ok(Replay::NotNow);
    }
    let Some(outgoing) = outgoing(&mut tx, &case).await? else { return Ok(Replay::NotPossible) };
    let Ok(prepared) = served.channel.prepare(&outgoing) else { return Ok(Replay::NotPossible) };
    if original.digest.as_deref() != Some(&prepared.digest[..]) {
        return Ok(Replay::NotPossible);
    }
    let token = Uuid::new_v4();
    let lease_until = after(now, served.config.lease());
    let opening = Opening {
        intent_id: case.intent.id,
        number: outgoing.attempt,
        kind: AttemptKind::Replay,
        token,
        worker: sending.worker,
        generation: &served.generation,
        now,
        lease_until,
    };
    store::attempts::open(&mut tx, &opening).await?;
    let allowance = allowance.no_longer_than((replay_until - now).to_std().unwrap_or_default());
    let claim = Claim { outgoing, token, allowance, lease_until, claimed_at: now, prepared: Ok(prepared) };
    let Some(claim) = claiming::commit(tx, entered, sending, served, vec![claim]).await?.pop() else {
        return Ok(Replay::Started);
    };
    sending.metrics.moved(State::InFlight.as_str(), "reconciler");
    let (sending, served) = (sending.clone(), Arc::clone(served));
    sending.tracker.clone().spawn(async move { dispatcher::send(&sending, &served, claim, slot).await });
    Ok(Replay::Started)
}

async fn outgoing(conn: &mut sqlx::PgConnection, case: &Case) -> Result<Option<Outgoing>, StoreError> {
    let intent = &case.intent;
    let (Some(payload), Some(key)) = (store::intents::payload(conn, intent.id).await?, intent.key.clone()) else {
        return Ok(None);
    };
    let Some(reference) = store::intents::given_reference(conn, intent.id).await? else { return Ok(None) };
    Ok(Some(Outgoing {
        intent_id: intent.id,
        tenant: intent.tenant.clone(),
        destination: intent.destination.clone(),
        key,
        reference,
        occurrence: intent.occurrence,
        recipient: intent.recipient.clone(),
        attempt: intent.attempt + 1,
        earlier_bytes: true,
        created_at: intent.created_at,
        payload,
    }))
}
