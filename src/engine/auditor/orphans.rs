//! Effects with our marks that no row explains: the same reference under a key that no intent of ours has.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;

use crate::{
    domain::question::{Hit, Seen},
    engine::folding::Case,
    store::{self, error::StoreError, sightings::NewSighting},
};

/// More namesakes than this are not told apart.
const NAMESAKES: i64 = 500;

/// Keeps every item among these that carries the intent's reference under a key of nobody, and tells people once. Returns how
/// many are new.
///
/// # Errors
/// When Postgres does.
pub(in crate::engine) async fn report(
    conn: &mut PgConnection,
    case: &Case,
    seen: Option<&Seen>,
) -> Result<usize, StoreError> {
    let Some(Seen::Hits { hits }) = seen else { return Ok(0) };
    let intent = &case.intent;
    let foreign = |hit: &&Hit| {
        let own = |key: &String| intent.key.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(key));
        let named = hit.reference.as_ref().is_some_and(|named| named.eq_ignore_ascii_case(&intent.reference));
        named && hit.key.as_ref().is_some_and(|key| !key.is_empty() && !own(key))
    };
    let foreign: Vec<&Hit> = hits.iter().filter(foreign).collect();
    if foreign.is_empty() {
        return Ok(0);
    }
    let namesakes = store::intents::namesakes(conn, &intent.reference, NAMESAKES).await?;
    if i64::try_from(namesakes.len()).unwrap_or(i64::MAX) >= NAMESAKES {
        return Ok(0);
    }
    let known = |key: &str| {
        namesakes.iter().any(|other| other.key.as_ref().is_some_and(|theirs| theirs.eq_ignore_ascii_case(key)))
    };
    let mut new = 0;
    for hit in foreign {
        let Some(key) = hit.key.as_deref().filter(|key| !known(key)) else { continue };
        let sighting = sighting_of(&intent.destination, key, hit, intent.created_at);
        new += usize::from(store::sightings::keep(conn, &sighting).await?);
    }
    if new > 0 {
        let what = intent.reference.to_uppercase();
        let summary = format!(
            "{} shows {what} under a key that no intent of ours has ({new} new); see settled.sightings",
            intent.destination
        );
        let (name, tenant) = (&intent.destination, &intent.tenant);
        let beside = json!({ "beside": intent.id });
        store::escalations::raise_sighting(conn, name, tenant, &summary, &beside, Some(intent.now)).await?;
        tracing::warn!(destination = %intent.destination, intent.reference = %intent.reference, new, "effects that no row explains");
    }
    Ok(new)
}

/// An item as it is kept. Without a time of its own it gets one that is the same whenever it is seen.
pub(super) fn sighting_of<'a>(
    destination: &'a str,
    key: &'a str,
    hit: &'a Hit,
    otherwise: DateTime<Utc>,
) -> NewSighting<'a> {
    NewSighting {
        destination,
        key,
        intent_id: None,
        status: "other",
        word: hit.status.as_deref().unwrap_or("listed"),
        code: None,
        provider_id: hit.id.as_deref().unwrap_or_default(),
        at: hit.at.unwrap_or(otherwise),
        received_by: "auditor",
    }
}
