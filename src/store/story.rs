//! Everything that is known about one intent, in the order it happened: for `settled show` and for people's pages.
//!
//! Recipient and payload are not part of it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{error::StoreError, listing};

/// One intent and all that was told of it.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Story {
    /// Where it stands.
    #[serde(flatten)]
    pub receipt: listing::Receipt,
    /// One sentence about the last move.
    pub detail: Option<String>,
    /// The key that left the building, once pinned.
    pub key: Option<String>,
    /// Secret that made it.
    pub kid: Option<String>,
    /// Whether nobody else may ask for the effect.
    pub holds_effect: bool,
    /// What happened, oldest first.
    pub events: Vec<Event>,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    /// When, by the database's clock.
    pub at: DateTime<Utc>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", tag = "event")]
#[schema(as = EventKind)]
pub enum What {
    /// Somebody asked for the effect.
    Request {
        /// Id.
        request_id: Uuid,
        /// Whose call it was.
        principal: String,
        /// By which surface.
        surface: String,
        /// Identity.
        run_id: String,
        /// Identity.
        step: i64,
        /// Identity.
        slot: String,
        /// Identity: a correction.
        revision: i32,
        /// As spelled.
        reference: String,
        /// What it was answered.
        verdict: String,
        /// Who instructed it.
        instructed_by: Option<Value>,
        /// Trace.
        traceparent: Option<String>,
    },
    /// An attempt began.
    AttemptBegan {
        /// Number.
        attempt: i32,
        /// Send or replay.
        kind: String,
        /// Generation of the destination.
        generation: String,
        /// Process.
        worker: Uuid,
        /// Nothing leaves after.
        lease_until: DateTime<Utc>,
    },
    /// An attempt ended.
    AttemptEnded {
        /// Number.
        attempt: i32,
        /// What it means.
        outcome: String,
        /// What was seen: stage, bytes, reply, cause.
        report: Value,
        /// From when no byte could still leave.
        closure_at: Option<DateTime<Utc>>,
    },
    /// A row of the journal: move, look-up, act, evidence, conflict.
    Told {
        /// Its id.
        journal_id: i64,
        /// Its kind.
        kind: String,
        /// The attempt it is about.
        attempt: Option<i32>,
        /// Who.
        actor: String,
        /// What.
        data: Value,
    },
    /// A person is asked.
    EscalationOpened {
        /// Id.
        escalation_id: Uuid,
        /// Why.
        reason: String,
        /// In a sentence.
        summary: String,
        /// Who has claimed it.
        claimed_by: Option<String>,
    },
    /// Nobody is asked any more.
    EscalationClosed {
        /// Id.
        escalation_id: Uuid,
        /// Why it was open.
        reason: String,
        /// By whom.
        closed_by: Option<String>,
        /// How.
        resolution: Option<String>,
    },
    /// A decision that binds a little later.
    Decision {
        /// Id.
        decision_id: Uuid,
        /// What.
        act: String,
        /// Who.
        actor: String,
        /// Why.
        reason: String,
        /// From when it binds.
        effective_at: DateTime<Utc>,
        /// Stopped by, where it was.
        stopped_by: Option<String>,
        /// What came of it.
        result: Option<String>,
    },
}

/// The whole story; `None` where there is no such intent, or not for that tenant. Read in one snapshot only when the caller
/// holds a repeatable-read transaction; for people the few milliseconds do not matter.
///
/// # Errors
/// When Postgres does.
pub async fn story(conn: &mut PgConnection, id: Uuid, tenant: Option<&str>) -> Result<Option<Story>, StoreError> {
    let Some(receipt) = listing::receipt(&mut *conn, id, tenant).await? else { return Ok(None) };
    let more =
        sqlx::query!("-- story::more\nselect detail, key, kid, holds_effect from settled.intents where id = $1", id)
            .fetch_one(&mut *conn)
            .await?;
    let mut events = requests(&mut *conn, id).await?;
    events.extend(attempts(&mut *conn, id).await?);
    events.extend(journal(&mut *conn, id).await?);
    events.extend(escalations(&mut *conn, id).await?);
    events.extend(decisions(&mut *conn, id).await?);
    // Stable: what happened at one instant stays in the order requests, attempts, journal, people.
    events.sort_by_key(|event| event.at);
    Ok(Some(Story {
        receipt,
        detail: more.detail,
        key: more.key,
        kid: more.kid,
        holds_effect: more.holds_effect,
        events,
    }))
}

async fn requests(conn: &mut PgConnection, id: Uuid) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query!(
        "-- story::requests
        select id, principal, surface, run_id, step, slot, revision, reference, verdict, instructed_by, traceparent, at
          from settled.requests where intent_id = $1 order by id",
        id
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Event {
            at: r.at,
            what: What::Request {
                request_id: r.id,
                principal: r.principal,
                surface: r.surface,
                run_id: r.run_id,
                step: r.step,
                slot: r.slot,
                revision: r.revision,
                reference: r.reference,
                verdict: r.verdict,
                instructed_by: r.instructed_by,
                traceparent: r.traceparent,
            },
        })
        .collect())
}

async fn attempts(conn: &mut PgConnection, id: Uuid) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query!(
        "-- story::attempts
        select number, kind, generation, worker, claimed_at, lease_until, closed_at, outcome, report, closure_at
          from settled.attempts where intent_id = $1 order by number",
        id
    )
    .fetch_all(conn)
    .await?;
    let mut events = Vec::with_capacity(rows.len() * 2);
    for r in rows {
        events.push(Event {
            at: r.claimed_at,
            what: What::AttemptBegan {
                attempt: r.number,
                kind: r.kind,
                generation: r.generation,
                worker: r.worker,
                lease_until: r.lease_until,
            },
        });
        if let (Some(at), Some(outcome)) = (r.closed_at, r.outcome) {
            let what = What::AttemptEnded {
                attempt: r.number,
                outcome,
                report: r.report.unwrap_or_default(),
                closure_at: r.closure_at,
            };
            events.push(Event { at, what });
        }
    }
    Ok(events)
}

async fn journal(conn: &mut PgConnection, id: Uuid) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query!(
        r#"-- story::journal
        select id, at, kind, attempt, actor,
               case when kind in ('look_up', 'audit') then settled.whole_look_up(data) else data end as "data!"
          from settled.journal where intent_id = $1 order by id"#,
        id
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Event {
            at: r.at,
            what: What::Told { journal_id: r.id, kind: r.kind, attempt: r.attempt, actor: r.actor, data: r.data },
        })
        .collect())
}

async fn escalations(conn: &mut PgConnection, id: Uuid) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query!(
        "-- story::escalations
        select id, reason, summary, opened_at, claimed_by, closed_at, closed_by, resolution
          from settled.escalations where intent_id = $1 order by id",
        id
    )
    .fetch_all(conn)
    .await?;
    let mut events = Vec::with_capacity(rows.len() * 2);
    for r in rows {
        events.push(Event {
            at: r.opened_at,
            what: What::EscalationOpened {
                escalation_id: r.id,
                reason: r.reason.clone(),
                summary: r.summary,
                claimed_by: r.claimed_by,
            },
        });
        if let Some(at) = r.closed_at {
            let what = What::EscalationClosed {
                escalation_id: r.id,
                reason: r.reason,
                closed_by: r.closed_by,
                resolution: r.resolution,
            };
            events.push(Event { at, what });
        }
    }
    Ok(events)
}

async fn decisions(conn: &mut PgConnection, id: Uuid) -> Result<Vec<Event>, StoreError> {
    let rows = sqlx::query!(
        "-- story::decisions
        select id, act, actor, reason, made_at, effective_at, stopped_by, result
          from settled.decisions where intent_id = $1 order by id",
        id
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Event {
            at: r.made_at,
            what: What::Decision {
                decision_id: r.id,
                act: r.act,
                actor: r.actor,
                reason: r.reason,
                effective_at: r.effective_at,
                stopped_by: r.stopped_by,
                result: r.result,
            },
        })
        .collect())
}
