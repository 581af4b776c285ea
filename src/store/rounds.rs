//! `settled.rounds`: the part of an answer that many intents share. Append-only.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::error::StoreError;

/// Keeps the shared part of an answer, before the rows that name it.
///
/// # Errors
/// When Postgres does.
pub async fn keep(
    conn: &mut PgConnection,
    id: Uuid,
    destination: &str,
    generation: &str,
    at: DateTime<Utc>,
    intents: i32,
    shared: &Value,
) -> Result<(), StoreError> {
    sqlx::query!(
        "-- rounds::keep
        insert into settled.rounds (id, destination, generation, at, intents, shared) values ($1, $2, $3, $4, $5, $6)",
        id,
        destination,
        generation,
        at,
        intents,
        shared,
    )
    .execute(conn)
    .await?;
    Ok(())
}
