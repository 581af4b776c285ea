//! pending → in_flight for one intent by name, beside the loops: how `verify` sends its canaries. The rules are those of the
//! dispatcher; only what it picks from the queue is not.

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    claiming,
    dispatcher::{self, Claim, Dispatcher, Sending},
    fleet::Served,
    folding::after,
    rate,
    self_stop::Allowance,
};
use crate::store::{
    self,
    error::StoreError,
    queue::Batch,
    requests::{EnqueueError, NewRequest, Receipt},
};

/// Why an intent was not both admitted and claimed. Nothing of it was kept.
#[derive(Debug, thiserror::Error)]
pub enum NotClaimed {
    /// The ledger refused it.
    #[error(transparent)]
    Refused(#[from] EnqueueError),
    /// Parked, paused, held for approval, or its pace allows nothing just now.
    #[error("nothing may be sent there just now")]
    Stopped,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for NotClaimed {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Admits an intent and claims it in one transaction, so that no daemon can claim it in between.
///
/// # Errors
/// See [`NotClaimed`].
pub async fn admit_and_claim(
    sending: &Sending,
    served: &Served,
    request: &NewRequest,
) -> Result<(Receipt, Claim), NotClaimed> {
    let allowance = Allowance::before_claim(&*sending.clock, served.config.lease());
    let mut tx = sending.pool.begin().await?;
    let Some(entered) = sending.watch.enter(&mut tx).await? else { return Err(NotClaimed::Stopped) };
    let paced = pace(&mut tx, sending, served).await?;
    let receipt = store::requests::enqueue(&mut tx, request).await?;
    if !paced {
        return Err(NotClaimed::Stopped);
    }
    let Some(claim) = claim_in(&mut tx, sending, served, receipt.intent_id, allowance).await? else {
        return Err(NotClaimed::Stopped);
    };
    let claim = claiming::commit(tx, entered, sending, served, vec![claim]).await?.pop();
    Ok((receipt, claim.ok_or(NotClaimed::Stopped)?))
}

/// Claims an intent that waits. `None` where somebody else has it, or nothing may be sent there just now.
///
/// # Errors
/// When Postgres does.
pub async fn claim(sending: &Sending, served: &Served, intent_id: Uuid) -> Result<Option<Claim>, StoreError> {
    let allowance = Allowance::before_claim(&*sending.clock, served.config.lease());
    let mut tx = sending.pool.begin().await?;
    let Some(entered) = sending.watch.enter(&mut tx).await? else { return Ok(None) };
    if !pace(&mut tx, sending, served).await? {
        return Ok(None);
    }
    let Some(claim) = claim_in(&mut tx, sending, served, intent_id, allowance).await? else { return Ok(None) };
    Ok(claiming::commit(tx, entered, sending, served, vec![claim]).await?.pop())
}

/// Sends what was claimed, once, and hands the result to whoever holds the other end of `sending.results`.
pub async fn send(sending: &Sending, served: &Served, claim: Claim) {
    // The limit is that of the destination; a closed semaphore would be a stop, which gives back by itself.
    match Arc::clone(&served.slots).acquire_owned().await {
        Ok(slot) => dispatcher::send(sending, served, claim, slot).await,
        Err(_closed) => dispatcher::give_back(sending, &served.config.name, vec![claim], "it stops").await,
    }
}

/// Spends one of what the whole fleet may begin. The row of the pace is locked before intents, never after.
async fn pace(conn: &mut PgConnection, sending: &Sending, served: &Served) -> Result<bool, StoreError> {
    let (name, rate) = (&served.config.name, served.config.limits.rate.as_ref());
    let (mut pace, now) = store::paces::lock(conn, name, rate::full(rate), sending.clock.sql_now()).await?;
    if rate::allowance(&mut pace, rate, now) == 0 {
        return Ok(false);
    }
    rate::spend(&mut pace, 1);
    store::paces::write(conn, name, &pace).await?;
    Ok(true)
}

async fn claim_in(
    conn: &mut PgConnection,
    sending: &Sending,
    served: &Served,
    intent_id: Uuid,
    allowance: Allowance,
) -> Result<Option<Claim>, StoreError> {
    let Some(pick) = store::verify::pick(conn, intent_id).await? else { return Ok(None) };
    // A second attempt would need proofs; that is the dispatcher's work.
    if pick.attempt > 0
        || pick.rewound
        || store::generations::is_stopped(conn, &served.config.name, &pick.identity.tenant).await?
    {
        return Ok(None);
    }
    let now = pick.now;
    let lease_until = after(now, served.config.lease());
    let mut batch = Batch::default();
    let dispatcher = Dispatcher::new(sending.clone());
    let Some(claim) = dispatcher.prepare(served, pick, false, allowance, lease_until, &mut batch) else {
        return Ok(None);
    };
    claiming::open(conn, sending, served, &batch, now, lease_until).await?;
    Ok(Some(claim))
}
