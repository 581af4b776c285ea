//! Under which keys a doubt is asked about, and which of the answers counts.

use crate::{
    domain::{absence::Judged, evidence::Verdict, key::Spelling, rewind::LOST},
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

/// How much an answer forbids: of several about one doubt the strictest counts. Among those that conclude nothing it is the one
/// that ends the row of equal answers; a clean "not there" counts only where every key had one.
pub(super) fn forbids(judged: &Judged) -> (u8, u8) {
    let earlier = judged.as_earlier();
    let verdict = match judged.verdict {
        Verdict::Duplicate { .. } => 5,
        Verdict::Found { .. } => 4,
        Verdict::Conflict { .. } => 3,
        Verdict::Inconclusive { .. } => 2,
        Verdict::AbsentByLag { .. } => 1,
        Verdict::Absent { .. } => 0,
    };
    (verdict, if earlier.nothing { 0 } else { 1 + u8::from(earlier.error) })
}
