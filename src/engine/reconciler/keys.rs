//! Under which keys a doubt is asked about, and which of the answers counts.

use sqlx::PgConnection;

use crate::{
    domain::{
        absence::Judged,
        evidence::Verdict,
        intent::Identity,
        key::{Key, Spelling},
        question::{Question, Seen},
        rewind::LOST,
    },
    engine::{dispatcher::Sending, folding::Case},
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
    Ok(held(sending, &identity, &intent.effect_scope).into_iter().map(|key| key.text).collect())
}

/// The keys of an identity under every secret that is still held.
fn held(sending: &Sending, identity: &Identity, scope: &str) -> Vec<Key> {
    let derived = |kid| sending.keyring.derive(Some(kid), &sending.region, identity, scope, Spelling::default()).ok();
    sending.keyring.kids().filter_map(derived).collect()
}

/// Pins the key under which lost attempts were found: from now on their effect is explained by this row, for whoever lists the
/// downstream and for every report of it.
pub(super) async fn pin(
    sending: &Sending,
    conn: &mut PgConnection,
    case: &mut Case,
    seen: Option<&Seen>,
) -> Result<(), StoreError> {
    let (None, Some(Seen::Hits { hits })) = (&case.intent.key, seen) else { return Ok(()) };
    let Some(identity) = store::intents::identity(conn, case.intent.id).await? else { return Ok(()) };
    let shown =
        |key: &Key| hits.iter().filter_map(|hit| hit.key.as_ref()).any(|own| own.eq_ignore_ascii_case(&key.text));
    let Some(key) = held(sending, &identity, &case.intent.effect_scope).into_iter().find(shown) else { return Ok(()) };
    store::intents::pin(conn, case.intent.id, &key.text, &key.kid).await?;
    case.intent.key = Some(key.text);
    Ok(())
}

/// Why absence says nothing about lost attempts: their effect was reported while no row explained it.
pub(super) async fn reported(
    conn: &mut PgConnection,
    case: &Case,
    number: i32,
    question: &Question,
) -> Result<Option<String>, StoreError> {
    let Some(probe) = question.probes.first().filter(|_| number == LOST) else { return Ok(None) };
    let reported = store::sightings::unexplained(conn, &case.intent.effect_scope, &probe.key).await?;
    Ok(reported.then(|| "an effect was reported under its key; see settled.sightings".to_owned()))
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
