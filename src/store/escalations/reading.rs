//! What people read about escalations. Nothing here moves anything.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::error::StoreError;

/// One escalation, with the little that a list shows of its intent.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Escalation {
    /// Id.
    pub id: Uuid,
    /// `intent`, `request`, `destination`, `sighting` or `instance`.
    pub subject: String,
    /// The intent, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_id: Option<Uuid>,
    /// Destination.
    pub destination: String,
    /// Tenant; empty where it concerns all.
    pub tenant: String,
    /// Why a person is asked.
    #[schema(value_type = crate::domain::reason::Reason)]
    pub reason: String,
    /// Groups an outage of many intents.
    pub cause: String,
    /// In a sentence.
    pub summary: String,
    /// What was known when it was opened.
    pub detail: Value,
    /// Since when.
    pub opened_at: DateTime<Utc>,
    /// Who has claimed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// Until when; a claim that ran out binds nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_until: Option<DateTime<Utc>>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assigned_to: Option<String>,
    /// Out of the ordinary list until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snoozed_until: Option<DateTime<Utc>>,
    /// Closed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<DateTime<Utc>>,
    /// By whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<String>,
    /// How.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    /// Its own optimistic version: for claim, release, take over, snooze, assign, acknowledge.
    pub version: i64,
    /// Reference of the intent, lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// State of the intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Optimistic version of the intent: for everything that decides about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_version: Option<i64>,
}

impl Escalation {
    /// Somebody else than `actor` has claimed it, and the claim has not run out.
    pub fn claimed_by_another(&self, actor: &str, now: DateTime<Utc>) -> Option<(&str, DateTime<Utc>)> {
        let (by, until) = (self.claimed_by.as_deref()?, self.claimed_until?);
        (by != actor && until > now).then_some((by, until))
    }
}

/// Which are listed.
#[derive(Debug, Clone, Default)]
pub struct Filter<'a> {
    /// Closed ones instead of open ones.
    pub closed: bool,
    /// Snoozed ones as well.
    pub snoozed: bool,
    /// Reason.
    pub reason: Option<&'a str>,
    /// Destination.
    pub destination: Option<&'a str>,
    /// Tenant; a person of one tenant sees nothing else.
    pub tenant: Option<&'a str>,
    /// Claimed by somebody, or by nobody.
    pub claimed: Option<bool>,
    /// Claimed by or assigned to this person.
    pub of: Option<&'a str>,
    /// Only this intent.
    pub intent_id: Option<Uuid>,
    /// Only this cause.
    pub cause: Option<&'a str>,
    /// Only older ones: the last id of the page before.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: i64,
}

/// Escalations, newest first, a page at a time.
///
/// # Errors
/// When Postgres does.
pub async fn list(
    conn: &mut PgConnection,
    filter: &Filter<'_>,
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Escalation>, StoreError> {
    Ok(sqlx::query_as!(
        Escalation,
        r#"-- escalations::list
        select e.id, e.subject, e.intent_id, e.destination, e.tenant, e.reason, e.cause, e.summary, e.detail, e.opened_at,
               e.claimed_by, e.claimed_until, e.assigned_to, e.snoozed_until, e.closed_at, e.closed_by, e.resolution,
               e.version, i.reference as "reference?", i.state as "state?", i.version as "intent_version?"
          from settled.escalations e left join settled.intents i on i.id = e.intent_id
         where (e.closed_at is not null) = $1
           and ($1 or $2 or e.snoozed_until is null or e.snoozed_until <= coalesce($12, clock_timestamp()))
           and ($3::text is null or e.reason = $3)
           and ($4::text is null or e.destination = $4)
           and ($5::text is null or e.tenant = $5)
           and ($6::boolean is null
                or $6 = (e.claimed_by is not null and e.claimed_until > coalesce($12, clock_timestamp())))
           and ($7::text is null or e.claimed_by = $7 or e.assigned_to = $7)
           and ($8::uuid is null or e.intent_id = $8)
           and ($9::text is null or e.cause = $9)
           and ($10::uuid is null or (e.opened_at, e.id) < (select b.opened_at, b.id from settled.escalations b where b.id = $10))
         order by e.opened_at desc, e.id desc limit $11"#,
        filter.closed,
        filter.snoozed,
        filter.reason,
        filter.destination,
        filter.tenant,
        filter.claimed,
        filter.of,
        filter.intent_id,
        filter.cause,
        filter.before,
        filter.limit,
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// Open escalations of one cause: an outage is one line.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Cause {
    /// The cause.
    pub cause: String,
    /// Its reason.
    pub reason: String,
    /// Its destination.
    pub destination: String,
    /// How many are open.
    pub open: i64,
    /// How many of them nobody has claimed.
    pub unclaimed: i64,
    /// Since when the oldest is open.
    pub oldest: DateTime<Utc>,
}

/// Open escalations by cause, most of them first.
///
/// # Errors
/// When Postgres does.
pub async fn causes(
    conn: &mut PgConnection,
    tenant: Option<&str>,
    at: Option<DateTime<Utc>>,
) -> Result<Vec<Cause>, StoreError> {
    Ok(sqlx::query_as!(
        Cause,
        r#"-- escalations::causes
        select cause, reason, destination, count(*) as "open!", min(opened_at) as "oldest!",
               count(*) filter (where claimed_by is null or claimed_until <= coalesce($2, clock_timestamp())) as "unclaimed!"
          from settled.escalations
         where closed_at is null and ($1::text is null or tenant = $1)
         group by cause, reason, destination order by 4 desc, 1"#,
        tenant,
        at,
    )
    .fetch_all(conn)
    .await?)
}

/// One escalation, for those who may see that tenant.
///
/// # Errors
/// When Postgres does.
pub async fn get(conn: &mut PgConnection, id: Uuid, tenant: Option<&str>) -> Result<Option<Escalation>, StoreError> {
    Ok(sqlx::query_as!(
        Escalation,
        r#"-- escalations::get
        select e.id, e.subject, e.intent_id, e.destination, e.tenant, e.reason, e.cause, e.summary, e.detail, e.opened_at,
               e.claimed_by, e.claimed_until, e.assigned_to, e.snoozed_until, e.closed_at, e.closed_by, e.resolution,
               e.version, i.reference as "reference?", i.state as "state?", i.version as "intent_version?"
          from settled.escalations e left join settled.intents i on i.id = e.intent_id
         where e.id = $1 and ($2::text is null or e.tenant = $2)"#,
        id,
        tenant,
    )
    .fetch_optional(conn)
    .await?)
}

/// Open escalations of an intent, oldest first.
///
/// # Errors
/// When Postgres does.
pub async fn open_of(conn: &mut PgConnection, intent_id: Uuid) -> Result<Vec<Escalation>, StoreError> {
    let filter = Filter { snoozed: true, intent_id: Some(intent_id), limit: 100, ..Filter::default() };
    let mut open = list(conn, &filter, None).await?;
    open.reverse();
    Ok(open)
}

/// What a person must know of the intent beside its story: to whom, and what each mistake costs.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Stakes {
    /// Channel of the destination.
    pub channel: String,
    /// To whom, in the normal form of the channel.
    pub recipient: String,
    /// Definition of the destination as published; secrets are references in it.
    #[serde(skip)]
    pub definition: Value,
    /// Generation in force.
    #[serde(skip)]
    pub generation: String,
    /// Must not be sent to, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_reason: Option<String>,
    /// Paused, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_reason: Option<String>,
    /// The payload is still there, so that it could be sent again.
    pub payload_kept: bool,
}

/// The stakes of one intent.
///
/// # Errors
/// When Postgres does.
pub async fn stakes(conn: &mut PgConnection, intent_id: Uuid) -> Result<Option<Stakes>, StoreError> {
    Ok(sqlx::query_as!(
        Stakes,
        r#"-- escalations::stakes
        select d.channel, i.recipient, d.definition, d.generation, d.parked_reason,
               (select string_agg(p.scope || ': ' || p.reason, '; ') from settled.pauses p
                 where p.scope = 'all' or (p.scope = 'destination' and p.name = i.destination)
                    or (p.scope = 'tenant' and p.name = i.tenant)) as paused_reason,
               exists (select from settled.payloads p where p.intent_id = i.id) as "payload_kept!"
          from settled.intents i join settled.destinations d on d.name = i.destination where i.id = $1"#,
        intent_id,
    )
    .fetch_optional(conn)
    .await?)
}
