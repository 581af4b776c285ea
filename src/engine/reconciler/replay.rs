//! Replay: the same bytes under the same key, while the downstream still keeps it. An attempt with token, lease and
//! self-stop like any other; outside the key's life it would be a second send.

use std::sync::Arc;

use uuid::Uuid;

use super::Doubt;
use crate::{
    config::destination::Destination,
    domain::{evidence::AttemptKind, intent::Outgoing, state::State},
    engine::{
        dispatcher::{self, Claim, Sending},
        folding::{Case, after},
        placement,
        self_stop::Allowance,
    },
    store::{self, attempts::Opening, error::StoreError},
};

/// Starts a replay of the doubtful attempt, where the rules allow one. False: try the next means.
pub(super) async fn start(sending: &Sending, doubt: &Doubt, config: &Destination) -> Result<bool, StoreError> {
    if sending.stopping.is_cancelled() {
        return Ok(false);
    }
    let Some(served) = sending.fleet.get(&doubt.case.intent.destination) else { return Ok(false) };
    // The same key at another downstream is simply a new effect.
    if config.replay.is_none() || served.generation != doubt.generation || placement::poisoned(&doubt.case) {
        return Ok(false);
    }
    let Some(original) = doubt.case.attempt(doubt.number) else { return Ok(false) };
    let Some(first) = doubt.case.attempts.iter().find(|a| a.attempt.kind == AttemptKind::Send) else {
        return Ok(false);
    };
    let Some(replay_until) = first.replay_until else { return Ok(false) };
    let Ok(slot) = Arc::clone(&served.slots).try_acquire_owned() else { return Ok(false) };
    let allowance = Allowance::before_claim(&*sending.clock, served.config.lease());
    let mut tx = sending.pool.begin().await?;
    store::durable(&mut tx).await?;
    let Some(case) = Case::lock(&mut tx, doubt.case.intent.id, sending.clock.sql_now()).await? else {
        return Ok(false);
    };
    let now = case.intent.now;
    let left = (replay_until - now).to_std().unwrap_or_default();
    let moved = case.intent.state != State::Unknown || case.intent.attempt != doubt.case.intent.attempt;
    if moved || left < served.config.worst_send_time() {
        return Ok(false);
    }
    if store::generations::stopped(&mut tx).await?.contains(&case.intent.destination) {
        return Ok(false);
    }
    let Some(outgoing) = outgoing(&mut tx, &case).await? else { return Ok(false) };
    let Ok(prepared) = served.channel.prepare(&outgoing) else { return Ok(false) };
    if original.digest.as_deref() != Some(&prepared.digest[..]) {
        return Ok(false);
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
    tx.commit().await?;
    sending.metrics.moved(State::InFlight.as_str(), "reconciler");
    let allowance = allowance.no_longer_than(left);
    let claim = Claim { outgoing, token, allowance, lease_until, claimed_at: now, prepared: Ok(prepared) };
    let (sending, served) = (sending.clone(), Arc::clone(served));
    sending.tracker.clone().spawn(async move { dispatcher::send(&sending, &served, claim, slot).await });
    Ok(true)
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
