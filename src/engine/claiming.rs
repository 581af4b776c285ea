//! What every claim ends with: the rows of its attempts, and a COMMIT that is believed only when it was heard.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, Postgres, Transaction};

use super::{
    dispatcher::{Claim, Sending, give_back},
    fleet::Served,
    folding::after,
    watch::Entered,
};
use crate::store::{self, error::StoreError, queue::Batch};

/// Opens one attempt for each intent of the batch. The caller holds their rows.
///
/// # Errors
/// When Postgres does, or one of them was moved meanwhile: nothing is sent without its row.
pub(super) async fn open(
    conn: &mut PgConnection,
    sending: &Sending,
    served: &Served,
    batch: &Batch,
    now: DateTime<Utc>,
    lease_until: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (config, worker) = (&served.config, sending.worker);
    if config.sightings.is_some() {
        store::sightings::expect(conn, &config.name, &batch.keys, &batch.ids).await?;
    }
    let replay_until =
        config.replay.as_ref().map(|replay| after(now, replay.key_lifetime.saturating_sub(replay.margin)));
    let opened =
        store::queue::open_attempts(conn, batch, worker, &served.generation, now, lease_until, replay_until).await?;
    if usize::try_from(opened).unwrap_or(0) == batch.ids.len() {
        return Ok(());
    }
    Err(StoreError::Moved { what: "claim", row: batch.ids.first().copied().unwrap_or_default() })
}

/// Commits; gives what may be sent now. Where the claim may not be on the standbys that is nothing, and where the reply was
/// lost an error; both times it is said of the claims that nothing was started, where they are there.
///
/// # Errors
/// When Postgres does: then nobody knows whether the claim stands.
pub(super) async fn commit(
    tx: Transaction<'_, Postgres>,
    entered: Entered,
    sending: &Sending,
    served: &Served,
    claims: Vec<Claim>,
) -> Result<Vec<Claim>, StoreError> {
    let (why, nothing) = match sending.watch.commit(tx, entered).await {
        Ok(true) => return Ok(claims),
        Ok(false) => ("the claim may not be on the standbys", Ok(Vec::new())),
        Err(error) => ("the reply to the claim was lost", Err(error)),
    };
    give_back(sending, &served.config.name, claims, why).await;
    nothing
}
