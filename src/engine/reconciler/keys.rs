//! Under which keys a doubt is asked about, and which of the answers counts.

use crate::{
    domain::{evidence::Verdict, key::Spelling, rewind::LOST},
    engine::dispatcher::Sending,
    store::{self, error::StoreError},
};

use super::Doubt;

/// The pinned key. Where none is pinned the doubt is about lost attempts, and they may have used any secret that is still
/// held; one that is gone weakens the question and does not stop the house.
pub(super) async fn of(sending: &Sending, doubt: &Doubt) -> Result<Vec<String>, StoreError> {
    let intent = &doubt.case.intent;
    if let Some(key) = &intent.key {
        return Ok(vec![key.clone()]);
    }
    let mut conn = sending.pool.acquire().await?;
    let identity = store::intents::identity(&mut conn, intent.id).await?;
    drop(conn);
    let (Some(identity), LOST) = (identity, doubt.number) else { return Ok(vec![String::new()]) };
    let keys: Vec<String> = sending
        .keyring
        .kids()
        .filter_map(|kid| {
            sending
                .keyring
                .derive(Some(kid), &sending.region, &identity, &intent.effect_scope, Spelling::default())
                .ok()
        })
        .map(|key| key.text)
        .collect();
    Ok(keys)
}

/// How much a verdict forbids: of several answers about one doubt the strictest counts.
pub(super) fn forbids(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Found { .. } | Verdict::Duplicate { .. } => 4,
        Verdict::Conflict { .. } => 3,
        Verdict::Inconclusive { .. } => 2,
        Verdict::AbsentByLag { .. } => 1,
        Verdict::Absent { .. } => 0,
    }
}
