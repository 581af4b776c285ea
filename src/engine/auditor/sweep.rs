//! Lists everything that a downstream got of late, once an hour for the whole fleet, and tells people of effects that carry a
//! key of ours and that no row explains: lost history, a second sender with our secret, or somebody who uses our marks.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::json;

use super::{Auditor, Inner, orphans::sighting_of};
use crate::{
    domain::question::{Hit, Marked},
    engine::{
        fleet::Served,
        reconciler::{
            budget::{Allowance, For},
            under_way::while_leased,
        },
    },
    store::{self, error::StoreError},
};

/// How often a destination is listed.
const EVERY: Duration = Duration::from_secs(3600);
/// How often a daemon looks whether it is time.
const LOOKED_EVERY: Duration = Duration::from_secs(60);
/// Longest window of one listing; what is older was not looked at while no daemon ran.
const LONGEST: chrono::TimeDelta = chrono::TimeDelta::hours(24);
/// References that are named to people; all of them are in the table.
const NAMED: usize = 5;

/// When each destination was looked at last, time since boot.
pub(super) type LookedAt = HashMap<String, Duration>;

impl Auditor {
    /// Begins the listings that are due.
    pub(super) async fn sweep(&mut self) -> Result<Vec<tokio::task::Id>, StoreError> {
        let boot = self.inner.sending.clock.boot();
        let served: Vec<Arc<Served>> = self.inner.sending.fleet.iter().map(Arc::clone).collect();
        let mut begun = Vec::new();
        for one in served {
            let name = one.config.name.clone();
            let lists = one.look_up.as_ref().is_some_and(|l| l.abilities().lists && l.abilities().shows_key);
            let looked = self.looked_at.get(&name).is_some_and(|at| boot < *at + LOOKED_EVERY);
            if !lists || looked || self.under_way.of(&name) > 0 {
                continue;
            }
            self.looked_at.insert(name.clone(), boot);
            let Some((since, now, charged)) = self.inner.due(&one).await? else { continue };
            let inner = Arc::clone(&self.inner);
            let sweeping = async move {
                if let Err(error) = inner.list(&one, since, now, charged).await {
                    tracing::warn!(destination = %one.config.name, %error, "what is there was not compared with what we know");
                }
                Vec::new()
            };
            begun.push(self.under_way.begin(&name, Vec::new(), sweeping));
        }
        Ok(begun)
    }
}

impl Inner {
    /// Takes the listing of a destination where it is due: since when, until when, calls charged. The first time only the
    /// beginning is written down.
    async fn due(&self, served: &Served) -> Result<Option<(DateTime<Utc>, DateTime<Utc>, f64)>, StoreError> {
        let (name, at) = (&served.config.name, self.sending.clock.sql_now());
        let mut tx = self.sending.pool.begin().await?;
        let Some(allowed) = Allowance::lock(&mut tx, name, Some(served), For::Audit, at).await? else {
            return Ok(None);
        };
        if allowed.questions < 1 {
            return Ok(None);
        }
        let now = allowed.now;
        let Some(since) = store::asking::sweep(&mut tx, name, now, EVERY.as_secs_f64()).await? else {
            tx.commit().await?;
            return Ok(None);
        };
        allowed.spend(&mut tx, name, 1).await?;
        tx.commit().await?;
        Ok(Some((since, now, allowed.cost)))
    }

    async fn list(
        &self,
        served: &Served,
        since: DateTime<Utc>,
        now: DateTime<Utc>,
        charged: f64,
    ) -> Result<(), StoreError> {
        let name = &served.config.name;
        let (Some(look_up), Some(declared)) = (&served.look_up, &served.config.look_up) else { return Ok(()) };
        // What became visible only since then belongs to the window before.
        let from = since - chrono::TimeDelta::from_std(declared.lag).unwrap_or(LONGEST).min(LONGEST);
        let listing = look_up.marked(from.max(now - LONGEST), now);
        let Some(marked) = while_leased(&self.sending, name, listing).await else { return Ok(()) };
        let marked = marked.unwrap_or_default();
        let mut conn = self.sending.pool.acquire().await?;
        store::asking::settle(&mut conn, name, charged, f64::from(marked.calls)).await?;
        self.sending.metrics.look_up_calls(name, marked.calls);
        let new = self.strangers(&mut conn, served, marked).await?;
        if let Some(summary) = in_words(name, &new) {
            store::escalations::raise_sighting(&mut conn, name, "", &summary, &json!({}), Some(now)).await?;
            tracing::warn!(destination = %name, new = new.len(), "effects that no row explains");
        }
        Ok(())
    }

    /// The references of those that are new, kept as sightings.
    async fn strangers(
        &self,
        conn: &mut sqlx::PgConnection,
        served: &Served,
        marked: Marked,
    ) -> Result<Vec<String>, StoreError> {
        // Without a reference nobody can look it up.
        let named = |hit: Hit| Some((hit.key.clone()?, hit.reference.clone()?.to_ascii_lowercase(), hit));
        let items: Vec<(String, String, Hit)> = marked.items.into_iter().filter_map(named).collect();
        let keys: Vec<String> = items.iter().map(|(key, _, _)| key.clone()).collect();
        let references: Vec<String> = items.iter().map(|(_, reference, _)| reference.clone()).collect();
        let mut new = Vec::new();
        for position in store::intents::unexplained(conn, &keys, &references).await? {
            let Some((key, reference, hit)) = items.get(position) else { continue };
            let sighting = sighting_of(&served.config.name, key, hit, DateTime::UNIX_EPOCH);
            if store::sightings::keep(conn, &sighting).await? {
                new.push(reference.to_uppercase());
            }
        }
        Ok(new)
    }
}

fn in_words(name: &str, new: &[String]) -> Option<String> {
    let first: Vec<&str> = new.iter().take(NAMED).map(String::as_str).collect();
    let more = new.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!new.is_empty()).then(|| {
        format!(
            "{name} has effects with our marks that no row explains: {}{more}; all of them are in settled.sightings",
            first.join(", ")
        )
    })
}
