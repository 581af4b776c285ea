//! Read models for lists, receipts and health. Nothing here moves anything.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// One intent in a list, and what a producer may know of its own: no payload, no recipient, no downstream reply.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Intent)]
pub struct Receipt {
    /// Id.
    pub intent_id: Uuid,
    /// Tenant.
    pub tenant: String,
    /// Destination.
    pub destination: String,
    /// Reference, lower case.
    pub reference: String,
    /// Occurrence.
    pub occurrence: i32,
    /// State.
    #[schema(value_type = crate::domain::state::State)]
    pub state: String,
    /// Attempts so far.
    pub attempts: i32,
    /// Admission.
    pub created_at: DateTime<Utc>,
    /// Not before.
    pub due_at: DateTime<Utc>,
    /// Not after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DateTime<Utc>>,
    /// When the effect happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<DateTime<Utc>>,
    /// When nothing more was open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<DateTime<Utc>>,
    /// The downstream's name for the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// What must be known about it for ever.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    /// A person is asked.
    pub with_a_person: bool,
    /// When something may change next: end of the lease, next question, next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<DateTime<Utc>>,
    /// Optimistic version.
    pub version: i64,
    /// Whole seconds until `next_at` by the database's clock, at least 1; `None` where nothing is planned.
    #[serde(skip)]
    pub next_in: Option<i64>,
}

/// Which intents are listed.
#[derive(Debug, Clone, Default)]
pub struct Filter<'a> {
    /// Reference; compared in lower case.
    pub reference: Option<&'a str>,
    /// State.
    pub state: Option<&'a str>,
    /// Destination.
    pub destination: Option<&'a str>,
    /// Tenant; a producer's own.
    pub tenant: Option<&'a str>,
    /// Only older ones: the last id of the page before.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: i64,
}

/// One intent, for those who may see that tenant.
///
/// # Errors
/// When Postgres does.
pub async fn receipt(
    conn: &mut PgConnection,
    intent_id: Uuid,
    tenant: Option<&str>,
) -> Result<Option<Receipt>, StoreError> {
    Ok(sqlx::query_as!(
        Receipt,
        r#"-- listing::receipt
        select i.id as intent_id, i.tenant, i.destination, i.reference, i.occurrence, i.state, i.attempt as attempts,
               i.created_at, i.due_at, i.deadline, i.sent_at, i.settled_at, i.provider_id, i.marks, i.version,
               exists (select from settled.escalations e
                        where e.intent_id = i.id and e.closed_at is null) as "with_a_person!",
               coalesce(q.leased_until, q.due_at) as "next_at?",
               greatest(1, ceil(extract(epoch from coalesce(q.leased_until, q.due_at) - clock_timestamp())))::bigint
                 as "next_in?"
          from settled.intents i
          left join settled.queue q on q.intent_id = i.id and q.kind in ('send', 'ask')
         where i.id = $1 and ($2::text is null or i.tenant = $2)"#,
        intent_id,
        tenant,
    )
    .fetch_optional(conn)
    .await?)
}

/// Intents, newest first, a page at a time.
///
/// # Errors
/// When Postgres does.
pub async fn list(conn: &mut PgConnection, filter: &Filter<'_>) -> Result<Vec<Receipt>, StoreError> {
    let reference = filter.reference.map(str::to_ascii_lowercase);
    Ok(sqlx::query_as!(
        Receipt,
        r#"-- listing::list
        select i.id as intent_id, i.tenant, i.destination, i.reference, i.occurrence, i.state, i.attempt as attempts,
               i.created_at, i.due_at, i.deadline, i.sent_at, i.settled_at, i.provider_id, i.marks, i.version,
               exists (select from settled.escalations e
                        where e.intent_id = i.id and e.closed_at is null) as "with_a_person!",
               coalesce(q.leased_until, q.due_at) as "next_at?",
               greatest(1, ceil(extract(epoch from coalesce(q.leased_until, q.due_at) - clock_timestamp())))::bigint
                 as "next_in?"
          from settled.intents i
          left join settled.queue q on q.intent_id = i.id and q.kind in ('send', 'ask')
         where ($1::text is null or i.reference = $1)
           and ($2::text is null or i.state = $2)
           and ($3::text is null or i.destination = $3)
           and ($4::text is null or i.tenant = $4)
           and ($5::uuid is null or i.id < $5)
         order by i.id desc limit $6"#,
        reference,
        filter.state,
        filter.destination,
        filter.tenant,
        filter.before,
        filter.limit,
    )
    .fetch_all(conn)
    .await?)
}

/// A call whose intent ended without effect: whoever made it must be told.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Unserved {
    /// Id of the request.
    pub request_id: Uuid,
    /// When it asked.
    pub at: DateTime<Utc>,
    /// Tenant.
    pub tenant: String,
    /// Identity.
    pub run_id: String,
    /// Identity.
    pub step: i64,
    /// Identity.
    pub slot: String,
    /// Whose call it was.
    pub principal: String,
    /// By which surface.
    pub surface: String,
    /// What it was answered then.
    #[schema(value_type = crate::store::requests::Verdict)]
    pub verdict: String,
    /// The intent that stood for the effect.
    pub intent_id: Uuid,
    /// Destination.
    pub destination: String,
    /// As spelled.
    pub reference: String,
    /// Occurrence.
    pub occurrence: i32,
    /// failed or cancelled.
    #[schema(value_type = crate::domain::state::State)]
    pub state: String,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<DateTime<Utc>>,
}

/// All calls whose intent ended without effect, repeats too, newest first. A call that was corrected since is served by its
/// correction. `state` of the filter is not looked at; `before` is the id of a request.
///
/// # Errors
/// When Postgres does.
pub async fn unserved(conn: &mut PgConnection, filter: &Filter<'_>) -> Result<Vec<Unserved>, StoreError> {
    let reference = filter.reference.map(str::to_ascii_lowercase);
    Ok(sqlx::query_as!(
        Unserved,
        r#"-- listing::unserved
        select r.id as request_id, r.at, r.tenant, r.run_id, r.step, r.slot, r.principal, r.surface, r.verdict, r.intent_id,
               i.destination, r.reference, i.occurrence, i.state, i.detail, i.settled_at
          from settled.requests r join settled.intents i on i.id = r.intent_id
         where i.state in ('failed', 'cancelled')
           and not exists (select from settled.requests n
                            where n.tenant = r.tenant and n.run_id = r.run_id and n.step = r.step and n.slot = r.slot
                              and n.revision > r.revision)
           and ($1::text is null or i.reference = $1)
           and ($2::text is null or i.destination = $2)
           and ($3::text is null or r.tenant = $3)
           and ($4::uuid is null or r.id < $4)
         order by r.id desc limit $5"#,
        reference,
        filter.destination,
        filter.tenant,
        filter.before,
        filter.limit,
    )
    .fetch_all(conn)
    .await?)
}

/// What is published about a destination.
#[derive(Debug, Clone, Serialize)]
pub struct PublishedDestination {
    /// Name.
    pub name: String,
    /// Channel.
    pub channel: String,
    /// Effect scope.
    pub effect_scope: String,
    /// Revision it was published with.
    pub revision: i64,
    /// Generation in force.
    pub generation: String,
    /// The whole definition, secrets as references.
    pub definition: serde_json::Value,
    /// When.
    pub published_at: DateTime<Utc>,
    /// Left the configuration.
    pub withdrawn_at: Option<DateTime<Utc>>,
    /// Must not be sent to, and why.
    pub parked_reason: Option<String>,
    /// Paused, itself or with everything, and why.
    pub paused_reason: Option<String>,
    /// It asked for a pause: nothing is sent before.
    pub not_before: Option<DateTime<Utc>>,
    /// Sends a second that it was learned to bear.
    pub learned_a_second: Option<f64>,
    /// When the generation in force was tested last.
    pub tested_at: Option<DateTime<Utc>>,
    /// What failed in that test.
    pub test_failed: Option<String>,
    /// Waiting to be sent.
    pub queued: i64,
    /// In doubt.
    pub in_doubt: i64,
}

/// All published destinations.
///
/// # Errors
/// When Postgres does.
pub async fn destinations(conn: &mut PgConnection) -> Result<Vec<PublishedDestination>, StoreError> {
    Ok(sqlx::query_as!(
        PublishedDestination,
        r#"-- listing::destinations
        select d.name, d.channel, d.effect_scope, d.revision, d.generation, d.definition, d.published_at, d.withdrawn_at,
               d.parked_reason, coalesce(p.reason, 'everything: ' || a.reason) as "paused_reason?",
               case when c.not_before > statement_timestamp() then c.not_before end as "not_before?",
               c.learned as "learned_a_second?", g.tested_at as "tested_at?", g.test_failed as "test_failed?",
               (select count(*) from settled.queue q where q.destination = d.name and q.kind = 'send') as "queued!",
               (select count(*) from settled.queue q where q.destination = d.name and q.kind = 'ask') as "in_doubt!"
          from settled.destinations d
          left join settled.pauses p on p.scope = 'destination' and p.name = d.name
          left join settled.pauses a on a.scope = 'all'
          left join settled.paces c on c.destination = d.name
          left join settled.generations g on g.destination = d.name and g.generation = d.generation
         order by d.name"#,
    )
    .fetch_all(conn)
    .await?)
}

/// A count under one or two names.
pub type Counts = Vec<(String, i64)>;

/// What the gauges show.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Destination, kind, rows.
    pub queue: Vec<(String, String, i64)>,
    /// Destination, intents in doubt, creation of the oldest (seconds since 1970).
    pub unknown: Vec<(String, i64, f64)>,
    /// Open escalations by reason.
    pub escalations: Counts,
    /// Pauses by scope.
    pub pauses: Counts,
    /// Destinations and whether they are parked.
    pub parked: Vec<(String, bool)>,
}

/// Counts everything that waits. Reads the queue and open escalations only, never all intents.
///
/// # Errors
/// When Postgres does.
pub async fn health(conn: &mut PgConnection) -> Result<Health, StoreError> {
    let queue = sqlx::query!(
        r#"-- listing::health_queue
        select destination, kind, count(*) as "count!" from settled.queue group by 1, 2 order by 1, 2"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let unknown = sqlx::query!(
        r#"-- listing::health_unknown
        select i.destination, count(*) as "count!", extract(epoch from min(i.created_at))::float8 as "oldest!"
          from settled.queue q join settled.intents i on i.id = q.intent_id
         where q.kind in ('ask', 'wait') and i.state = 'unknown' group by 1 order by 1"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let escalations = sqlx::query!(
        r#"-- listing::health_escalations
        select reason, count(*) as "count!" from settled.escalations where closed_at is null group by 1 order by 1"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let pauses = sqlx::query!(
        r#"-- listing::health_pauses
        select scope, count(*) as "count!" from settled.pauses group by 1 order by 1"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let parked = sqlx::query!(
        r#"-- listing::health_parked
        select name, (parked_at is not null) as "parked!" from settled.destinations where withdrawn_at is null"#
    )
    .fetch_all(conn)
    .await?;
    Ok(Health {
        queue: queue.into_iter().map(|r| (r.destination, r.kind, r.count)).collect(),
        unknown: unknown.into_iter().map(|r| (r.destination, r.count, r.oldest)).collect(),
        escalations: escalations.into_iter().map(|r| (r.reason, r.count)).collect(),
        pauses: pauses.into_iter().map(|r| (r.scope, r.count)).collect(),
        parked: parked.into_iter().map(|r| (r.name, r.parked)).collect(),
    })
}

/// Answers at all, and whether it can be written to; for readiness.
///
/// # Errors
/// When Postgres does.
pub async fn ping(conn: &mut PgConnection) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- listing::ping
        select current_setting('transaction_read_only') = 'off' as "writable!" from (select count(*) from settled.destinations) d"#
    )
    .fetch_one(conn)
    .await?)
}

/// Whether the session belongs to the owner of the ledger. Asked of the catalogue, since a producer may not call
/// `settled.is_owner`.
///
/// # Errors
/// When Postgres does.
pub async fn is_owner(conn: &mut PgConnection) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- listing::is_owner
        select coalesce((select pg_has_role(session_user, n.nspowner, 'member')
                           from pg_namespace n where n.nspname = 'settled'), false) as "owner!""#
    )
    .fetch_one(conn)
    .await?)
}
