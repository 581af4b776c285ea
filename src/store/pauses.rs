//! `settled.pauses`: sending is stopped for all, a destination or a tenant while the row is here.
//!
//! Every pause and resumption is a journal row in the same statement.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::error::StoreError;

/// What is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "scope", content = "name")]
pub enum Scope {
    /// Everything.
    All,
    /// One destination.
    Destination(String),
    /// One tenant.
    Tenant(String),
}

impl Scope {
    /// The words in the columns.
    pub fn columns(&self) -> (&'static str, &str) {
        match self {
            Self::All => ("all", ""),
            Self::Destination(name) => ("destination", name),
            Self::Tenant(name) => ("tenant", name),
        }
    }
}

/// Most characters of a reason.
pub const REASON: usize = 2_000;

/// Why a pause cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Refused {
    /// `name` or `reason`.
    pub field: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// The reason of a pause, trimmed, where it and the name are what can be kept and shown: a pause is read by everybody.
///
/// # Errors
/// The field and its rule.
pub fn checked<'a>(scope: &Scope, reason: &'a str) -> Result<&'a str, Refused> {
    let (_, name) = scope.columns();
    if name.len() > 63 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        return Err(Refused { field: "name", rule: "must be at most 63 of A-Z a-z 0-9 . _ -" });
    }
    let reason = reason.trim();
    if reason.is_empty() {
        Err(Refused { field: "reason", rule: "must say why" })
    } else if reason.chars().count() > REASON {
        Err(Refused { field: "reason", rule: "must not be longer than 2000 characters" })
    } else if reason.chars().any(char::is_control) {
        Err(Refused { field: "reason", rule: "must not contain control characters" })
    } else {
        Ok(reason)
    }
}

/// A pause in force.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Pause {
    /// `all`, `destination` or `tenant`.
    pub scope: String,
    /// Name of the destination or tenant; empty for all.
    pub name: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub paused_by: String,
    /// Since when.
    pub paused_at: DateTime<Utc>,
}

/// Pauses. False when it is paused already; the first reason stays.
///
/// # Errors
/// When Postgres does.
pub async fn add(conn: &mut PgConnection, scope: &Scope, reason: &str, actor: &str) -> Result<bool, StoreError> {
    let (word, name) = scope.columns();
    let new = sqlx::query_scalar!(
        r#"-- pauses::add
        with paused as (
            insert into settled.pauses (scope, name, reason, paused_by) values ($1, $2, $3, $4)
            on conflict do nothing returning scope),
        told as (
            insert into settled.journal (kind, actor, data)
            select 'administration', $4,
                   jsonb_build_object('act', 'pause', 'scope', $1::text, 'name', $2::text, 'reason', $3::text)
              from paused)
        select count(*) as "count!" from paused"#,
        word,
        name,
        reason,
        actor,
    )
    .fetch_one(conn)
    .await?;
    Ok(new == 1)
}

/// Resumes. False when it was not paused.
///
/// # Errors
/// When Postgres does.
pub async fn remove(conn: &mut PgConnection, scope: &Scope, actor: &str) -> Result<bool, StoreError> {
    let (word, name) = scope.columns();
    let gone = sqlx::query_scalar!(
        r#"-- pauses::remove
        with resumed as (
            delete from settled.pauses where scope = $1 and name = $2 returning reason),
        told as (
            insert into settled.journal (kind, actor, data)
            select 'administration', $3,
                   jsonb_build_object('act', 'resume', 'scope', $1::text, 'name', $2::text, 'reason', reason)
              from resumed)
        select count(*) as "count!" from resumed"#,
        word,
        name,
        actor,
    )
    .fetch_one(conn)
    .await?;
    Ok(gone == 1)
}

/// All pauses in force, oldest first.
///
/// # Errors
/// When Postgres does.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<Pause>, StoreError> {
    Ok(sqlx::query_as!(
        Pause,
        "-- pauses::list
        select scope, name, reason, paused_by, paused_at from settled.pauses order by paused_at, scope, name",
    )
    .fetch_all(conn)
    .await?)
}
