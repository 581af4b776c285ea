//! Destinations as the database knows them. Called by `destinations publish`, by the daemon at start, and by everything that
//! needs the definition behind a generation.

use chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection};

use crate::config::destination::Destination;

/// What `publish` was handed.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// As configured.
    pub destination: &'a Destination,
    /// Only a higher one replaces.
    pub revision: i64,
    /// Hash of what makes it this downstream.
    pub generation: &'a str,
    /// Its look-up asks by our key, so references may hold a colon.
    pub asked_by_key: bool,
}

/// What became of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// It was not there.
    New,
    /// A lower revision was replaced, or a withdrawn one came back.
    Replaced,
    /// The same revision and definition were there.
    Unchanged,
    /// The database holds a higher revision; this process must not claim for what differs.
    Older {
        /// That revision.
        held: i64,
    },
}

/// Why a publication is refused.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The number stands for another definition already.
    #[error("revision {revision} of destination {name} is published with another definition; raise the revision")]
    SameRevision {
        /// Destination.
        name: String,
        /// The number.
        revision: i64,
    },
    /// Recipients have a normal form per channel, so effects would be forgotten.
    #[error(
        "channel of destination {0} must not change; give the new downstream a name of its own and share effect_scope"
    )]
    ChannelChanged(String),
    /// Effects are unique under their scope, so those asked for so far would be forgotten.
    #[error(
        "effect_scope of destination {name} must not change from {held}: effects asked for under it would be forgotten; \
         give the new downstream a name of its own with effect_scope = \"{held}\""
    )]
    ScopeChanged {
        /// Destination.
        name: String,
        /// What is published.
        held: String,
    },
    /// Postgres matches the reference and does not know this expression.
    #[error("reference_pattern of destination {0} is not a regular expression of postgres")]
    Pattern(String),
    /// It cannot be written as JSON.
    #[error(transparent)]
    Definition(#[from] serde_json::Error),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Publishes one destination and remembers its generation.
pub async fn publish(conn: &mut PgConnection, publication: Publication<'_>) -> Result<Published, PublishError> {
    let Publication { destination, revision, generation, asked_by_key } = publication;
    let name = destination.name.as_str();
    let definition = serde_json::to_value(destination)?;
    let rules = serde_json::json!({
        "reference_pattern": destination.reference_pattern,
        "asked_by_key": asked_by_key,
        "approval": destination.approval,
        "canonical": destination.canonical,
    });
    check_pattern(conn, destination).await?;
    let mut tx = conn.begin().await?;
    let held = sqlx::query!(
        "-- destinations::publish (held)
        select channel, effect_scope, revision, definition, rules, generation, withdrawn_at from settled.destinations where name = $1 for no key update",
        name
    )
    .fetch_optional(&mut *tx)
    .await?;
    let outcome = match held {
        None => Published::New,
        Some(held) if held.channel != destination.channel.as_str() => {
            return Err(PublishError::ChannelChanged(name.to_owned()));
        }
        Some(held) if held.revision > revision => return Ok(Published::Older { held: held.revision }),
        Some(held) if held.effect_scope != destination.scope() => {
            return Err(PublishError::ScopeChanged { name: name.to_owned(), held: held.effect_scope });
        }
        Some(held) if held.revision < revision => Published::Replaced,
        Some(held) if held.definition != definition || held.rules != rules || held.generation != generation => {
            return Err(PublishError::SameRevision { name: name.to_owned(), revision });
        }
        Some(held) if held.withdrawn_at.is_some() => Published::Replaced,
        Some(_) => return Ok(Published::Unchanged),
    };
    let written = sqlx::query!(
        "-- destinations::publish
        with g as (
          insert into settled.generations (destination, generation, definition) select $1, $5, $7 on conflict do nothing
        ), j as (
          insert into settled.journal (kind, actor, data)
          values ('administration', 'owner:' || session_user,
            jsonb_build_object('act', 'publish', 'destination', $1::text, 'revision', $4::bigint, 'generation', $5::text, 'effect_scope', $3::text))
        )
        insert into settled.destinations (name, channel, effect_scope, revision, generation, rules, definition)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict (name) do update set effect_scope = excluded.effect_scope, revision = excluded.revision,
          generation = excluded.generation, rules = excluded.rules, definition = excluded.definition,
          published_at = clock_timestamp(), withdrawn_at = null
        where settled.destinations.revision <= excluded.revision",
        name,
        destination.channel.as_str(),
        destination.scope(),
        revision,
        generation,
        rules,
        definition,
    )
    .execute(&mut *tx)
    .await?;
    if written.rows_affected() != 1 {
        // Two published the same new name at once; the other one's number is higher.
        return Ok(Published::Older { held: revision.saturating_add(1) });
    }
    tx.commit().await?;
    Ok(outcome)
}

async fn check_pattern(conn: &mut PgConnection, destination: &Destination) -> Result<(), PublishError> {
    let Some(pattern) = &destination.reference_pattern else { return Ok(()) };
    let tried = sqlx::query_scalar!(
        r#"-- destinations::check_pattern
        select '' ~ ('^(?:' || $1::text || ')$') as "matches!""#,
        pattern
    )
    .fetch_one(conn)
    .await;
    match tried {
        Ok(_) => Ok(()),
        Err(error) if error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code == "2201B") => {
            Err(PublishError::Pattern(destination.name.clone()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Marks a destination as gone from the configuration: nothing new is accepted, what is there becomes unserved.
pub async fn withdraw(conn: &mut PgConnection, name: &str) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "-- destinations::withdraw
        with w as (
          update settled.destinations set withdrawn_at = clock_timestamp() where name = $1 and withdrawn_at is null returning name
        )
        insert into settled.journal (kind, actor, data)
        select 'administration', 'owner:' || session_user, jsonb_build_object('act', 'withdraw', 'destination', w.name) from w",
        name
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// One row of [`list`].
#[derive(Debug, Clone, serde::Serialize)]
pub struct Row {
    /// Name.
    pub name: String,
    /// Channel.
    pub channel: String,
    /// Name under which effects are unique.
    pub effect_scope: String,
    /// Published revision.
    pub revision: i64,
    /// What new attempts are sent to.
    pub generation: String,
    /// The whole definition; secrets are references in it.
    pub definition: serde_json::Value,
    /// When.
    pub published_at: DateTime<Utc>,
    /// Set when it has left the configuration.
    pub withdrawn_at: Option<DateTime<Utc>>,
    /// Set while it must not be sent to.
    pub parked_at: Option<DateTime<Utc>>,
    /// Why.
    pub parked_reason: Option<String>,
    /// Tenants that may use it.
    pub tenants: Vec<String>,
}

/// All destinations, by name, withdrawn ones too.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"-- destinations::list
        select d.name, d.channel, d.effect_scope, d.revision, d.generation, d.definition, d.published_at, d.withdrawn_at, d.parked_at,
          d.parked_reason, array(select g.tenant from settled.grants g where g.destination = d.name order by g.tenant) as "tenants!"
        from settled.destinations d order by d.name"#
    )
    .fetch_all(conn)
    .await
}
