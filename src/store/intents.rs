//! `settled.intents` and `settled.payloads`: one effect that somebody wants once.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::{StoreError, one};
use crate::domain::{intent::Identity, state::State};

/// An intent as the fold needs it.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Id.
    pub id: Uuid,
    /// Tenant.
    pub tenant: String,
    /// Destination name.
    pub destination: String,
    /// Effect scope.
    pub effect_scope: String,
    /// Recipient in normal form.
    pub recipient: String,
    /// Reference, lower case.
    pub reference: String,
    /// Occurrence.
    pub occurrence: i32,
    /// Nobody else may ask for the effect.
    pub holds_effect: bool,
    /// Current state.
    pub state: State,
    /// False while a policy waits for a person.
    pub approved: bool,
    /// Number of the newest attempt.
    pub attempt: i32,
    /// Pieces of evidence so far.
    pub evidence: i32,
    /// Optimistic version for people.
    pub version: i64,
    /// Pinned key.
    pub key: Option<String>,
    /// Its secret.
    pub kid: Option<String>,
    /// Admission.
    pub created_at: DateTime<Utc>,
    /// Not sent before.
    pub due_at: DateTime<Utc>,
    /// Not sent after.
    pub deadline: Option<DateTime<Utc>>,
    /// The downstream's name for the effect.
    pub provider_id: Option<String>,
    /// When it was sent.
    pub sent_at: Option<DateTime<Utc>>,
    /// What must be known about it for ever.
    pub marks: Vec<String>,
    /// Newest rewind whose lost attempts are among its evidence; 0 for none.
    pub rewind: i32,
    /// Database time of the read.
    pub now: DateTime<Utc>,
}

/// Locks an intent and reads it. Everything that moves it does this first.
///
/// # Errors
/// When Postgres does, or the row is not readable.
pub async fn lock(conn: &mut PgConnection, id: Uuid, at: Option<DateTime<Utc>>) -> Result<Option<Intent>, StoreError> {
    let row = sqlx::query!(
        r#"-- intents::lock
        select id, tenant, destination, effect_scope, recipient, reference, occurrence, holds_effect, state, approved,
               attempt, evidence, version, key, kid, created_at, due_at, deadline, provider_id, sent_at, marks, rewind,
               coalesce($2, clock_timestamp()) as "now!"
          from settled.intents where id = $1 for no key update"#,
        id,
        at,
    )
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let state = State::parse(&row.state).ok_or_else(|| StoreError::Inconsistent {
        table: "intents",
        column: "state",
        row: id,
        why: row.state.clone(),
    })?;
    Ok(Some(Intent {
        id: row.id,
        tenant: row.tenant,
        destination: row.destination,
        effect_scope: row.effect_scope,
        recipient: row.recipient,
        reference: row.reference,
        occurrence: row.occurrence,
        holds_effect: row.holds_effect,
        state,
        approved: row.approved,
        attempt: row.attempt,
        evidence: row.evidence,
        version: row.version,
        key: row.key,
        kid: row.kid,
        created_at: row.created_at,
        due_at: row.due_at,
        deadline: row.deadline,
        provider_id: row.provider_id,
        sent_at: row.sent_at,
        marks: row.marks,
        rewind: row.rewind,
        now: row.now,
    }))
}

/// What a move writes.
#[derive(Debug, Clone)]
pub struct Move<'a> {
    /// The intent as it was locked.
    pub from: &'a Intent,
    /// Its new state.
    pub state: State,
    /// Whether it still holds its effect.
    pub holds_effect: bool,
    /// Approved by now.
    pub approved: bool,
    /// Evidence that this transaction appended.
    pub appended: i32,
    /// People must look again (not for look-up answers).
    pub new_version: bool,
    /// Provider id, where the move learned one.
    pub provider_id: Option<&'a str>,
    /// One sentence for people.
    pub detail: Option<&'a str>,
    /// All marks.
    pub marks: &'a [String],
    /// Who moved it, for the journal.
    pub actor: &'a str,
    /// What the journal tells of it.
    pub story: serde_json::Value,
}

impl Move<'_> {
    /// Whether the journal hears of it: evidence that changes nothing has a row of its own.
    fn tells(&self) -> bool {
        self.from.state != self.state
            || self.from.holds_effect != self.holds_effect
            || self.from.marks.as_slice() != self.marks
    }
}

/// Writes a move and the journal row that tells of it, in one statement.
///
/// # Errors
/// [`StoreError::Moved`] when the guard (state, attempt, evidence) no longer holds.
pub async fn write_move(conn: &mut PgConnection, m: &Move<'_>) -> Result<(), StoreError> {
    let written = sqlx::query_scalar!(
        r#"-- intents::write_move
        with moved as (
            update settled.intents
               set state = $5, holds_effect = $6, approved = $7, evidence = evidence + $8,
                   version = version + case when $9 then 1 else 0 end,
                   provider_id = coalesce($10, provider_id), detail = coalesce($11, detail), marks = $12,
                   sent_at = case when $5 = 'sent' then coalesce(sent_at, $13) end,
                   settled_at = case when $5 in ('sent', 'failed', 'cancelled', 'abandoned') then coalesce(settled_at, $13) end
             where id = $1 and state = $2 and attempt = $3 and evidence = $4
            returning id),
        told as (
            insert into settled.journal (intent_id, at, kind, attempt, actor, data)
            select id, $13, 'move', $3, $14, jsonb_build_object('from', $2::text, 'to', $5::text) || $15::jsonb
              from moved where $16)
        select count(*) as "count!" from moved"#,
        m.from.id,
        m.from.state.as_str(),
        m.from.attempt,
        m.from.evidence,
        m.state.as_str(),
        m.holds_effect,
        m.approved,
        m.appended,
        m.new_version,
        m.provider_id,
        m.detail,
        m.marks,
        m.from.now,
        m.actor,
        m.story,
        m.tells(),
    )
    .fetch_one(conn)
    .await
    .map_err(|error| {
        let effect_taken = error.as_database_error().is_some_and(|e| e.constraint() == Some("intents_effect"));
        // Somebody took the effect between our look and our write: look again.
        if effect_taken { StoreError::Moved { what: "effect", row: m.from.id } } else { StoreError::Database(error) }
    })?;
    one(u64::try_from(written).unwrap_or(0), "intent", m.from.id)
}

/// Pins a key where none is pinned yet. The caller holds the row.
///
/// # Errors
/// When Postgres does.
pub async fn pin(conn: &mut PgConnection, id: Uuid, key: &str, kid: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "-- intents::pin\nupdate settled.intents set key = $2, kid = $3 where id = $1 and key is null",
        id,
        key,
        kid
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Another intent of ours that carries the same reference: what could explain a hit.
#[derive(Debug, Clone)]
pub struct Namesake {
    /// Its id.
    pub id: Uuid,
    /// Tenant.
    pub tenant: String,
    /// Effect scope.
    pub effect_scope: String,
    /// Destination.
    pub destination: String,
    /// Recipient.
    pub recipient: String,
    /// Occurrence.
    pub occurrence: i32,
    /// Pinned key.
    pub key: Option<String>,
    /// Newest attempt; 0 when never attempted.
    pub attempt: i32,
    /// Attempts that are not proven to have made no effect.
    pub possible: i64,
}

/// Every intent, of any state, tenant or age, that carries this reference. Bounded: more than `limit` is a reason not to conclude.
///
/// # Errors
/// When Postgres does.
pub async fn namesakes(conn: &mut PgConnection, reference: &str, limit: i64) -> Result<Vec<Namesake>, StoreError> {
    Ok(sqlx::query_as!(
        Namesake,
        r#"-- intents::namesakes
        select id, tenant, effect_scope, destination, recipient, occurrence, key, attempt,
               (select count(*) from settled.attempts a
                 where a.intent_id = i.id and (a.outcome is null or a.outcome in ('sent', 'ambiguous'))) as "possible!"
          from settled.intents i where reference = $1 order by id limit $2"#,
        reference,
        limit,
    )
    .fetch_all(conn)
    .await?)
}

/// Another intent that holds this effect now, if any.
///
/// # Errors
/// When Postgres does.
pub async fn holder_of(conn: &mut PgConnection, intent: &Intent) -> Result<Option<Uuid>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"-- intents::holder_of
        select id from settled.intents
         where tenant = $1 and effect_scope = $2 and recipient = $3 and reference = $4 and occurrence = $5
           and holds_effect and id <> $6"#,
        intent.tenant,
        intent.effect_scope,
        intent.recipient,
        intent.reference,
        intent.occurrence,
        intent.id,
    )
    .fetch_optional(conn)
    .await?)
}

/// The payload as given; `None` once purged.
///
/// # Errors
/// When Postgres does.
pub async fn payload(conn: &mut PgConnection, id: Uuid) -> Result<Option<String>, StoreError> {
    Ok(sqlx::query_scalar!("-- intents::payload\nselect body from settled.payloads where intent_id = $1", id)
        .fetch_optional(conn)
        .await?)
}

/// A new deadline and, after a hard-negative end, a new revision with a new key. Part of *send again*.
///
/// # Errors
/// [`StoreError::Moved`] when it is not there.
pub async fn reopen(
    conn: &mut PgConnection,
    id: Uuid,
    deadline: Option<DateTime<Utc>>,
    new_revision: bool,
) -> Result<(), StoreError> {
    let done = sqlx::query!(
        "-- intents::reopen
        update settled.intents i
           set deadline = $2,
               -- Above every revision that made or may make a key of this identity, corrections by others included.
               revision = case when $3 then 1 + greatest(i.revision, (
                   select max(other.revision) from settled.requests mine
                     join settled.requests other using (tenant, run_id, step, slot)
                    where mine.intent_id = i.id and mine.verdict = 'accepted')) else i.revision end,
               key = case when $3 then null else i.key end, kid = case when $3 then null else i.kid end
         where i.id = $1",
        id,
        deadline,
        new_revision,
    )
    .execute(conn)
    .await?;
    one(done.rows_affected(), "intent", id)
}

/// Makes forms that people have open stale, where an act moves nothing. The caller holds the row.
///
/// # Errors
/// [`StoreError::Moved`] when its version is another.
pub async fn touch(conn: &mut PgConnection, id: Uuid, version: i64) -> Result<(), StoreError> {
    let done = sqlx::query!(
        "-- intents::touch
        update settled.intents set version = version + 1 where id = $1 and version = $2",
        id,
        version,
    )
    .execute(conn)
    .await?;
    one(done.rows_affected(), "intent", id)
}

/// Who asked first, which makes the key; its revision is the one of the intent.
///
/// # Errors
/// When Postgres does.
pub async fn identity(conn: &mut PgConnection, id: Uuid) -> Result<Option<Identity>, StoreError> {
    Ok(sqlx::query_as!(
        Identity,
        "-- intents::identity
        select i.tenant, r.run_id, r.step, r.slot, i.revision
          from settled.intents i join settled.requests r on r.intent_id = i.id and r.verdict = 'accepted'
         where i.id = $1",
        id,
    )
    .fetch_optional(conn)
    .await?)
}

/// The reference as its first caller spelled it; what travels in the message.
///
/// # Errors
/// When Postgres does.
pub async fn given_reference(conn: &mut PgConnection, id: Uuid) -> Result<Option<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        "-- intents::given_reference
        select reference from settled.requests where intent_id = $1 and verdict = 'accepted'",
        id,
    )
    .fetch_optional(conn)
    .await?)
}

/// Adds a mark that the fold cannot compute, with its journal row. False where it bears it already. The caller holds the row.
///
/// # Errors
/// When Postgres does.
pub async fn mark(
    conn: &mut PgConnection,
    id: Uuid,
    mark: &str,
    actor: &str,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let marked = sqlx::query_scalar!(
        r#"-- intents::mark
        with marked as (
            update settled.intents set marks = array_append(marks, $2), version = version + 1
             where id = $1 and not $2 = any (marks)
            returning id, attempt, state),
        told as (
            insert into settled.journal (intent_id, at, kind, attempt, actor, data)
            select id, $4, 'move', attempt, $3, jsonb_build_object('from', state, 'to', state, 'mark', $2::text) from marked)
        select count(*) as "count!" from marked"#,
        id,
        mark,
        actor,
        at,
    )
    .fetch_one(conn)
    .await?;
    Ok(marked == 1)
}

/// Which of these items no intent explains: positions in the lists, from 0. References are in lower case; an item is explained
/// by an intent of its reference with its key.
///
/// # Errors
/// When Postgres does.
pub async fn unexplained(
    conn: &mut PgConnection,
    keys: &[String],
    references: &[String],
) -> Result<Vec<usize>, StoreError> {
    let positions = sqlx::query_scalar!(
        r#"-- intents::unexplained
        select k.position as "position!" from unnest($1::text[], $2::text[]) with ordinality k(key, reference, position)
         where not exists (select from settled.intents i
                            where i.reference = k.reference and i.key is not null and lower(i.key) = lower(k.key))"#,
        keys,
        references,
    )
    .fetch_all(conn)
    .await?;
    Ok(positions.into_iter().filter_map(|position| usize::try_from(position - 1).ok()).collect())
}
