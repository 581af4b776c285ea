//! Every SQL statement, one file a table. Functions take a connection, so a caller with a transaction can join.

pub mod asking;
pub mod attempts;
pub mod audits;
#[cfg(feature = "demo")]
pub mod bench;
pub mod bulk;
pub mod destinations;
pub mod doctor;
pub mod error;
pub mod escalations;
pub mod generations;
pub mod instance;
pub mod intents;
pub mod journal;
pub mod listing;
pub mod migrations;
pub mod paces;
pub mod pauses;
pub mod producers;
pub mod queue;
pub mod requests;
pub mod rewinds;
pub mod rounds;
pub mod session;
pub mod sightings;
pub mod story;
pub mod tokens;
pub mod verify;
pub mod witnesses;
pub mod workers;

/// The migrations, forward only.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();

/// Makes the running transaction durable before its COMMIT is answered, whatever the role or database is set to.
///
/// # Errors
/// When Postgres does.
pub async fn durable(conn: &mut sqlx::PgConnection) -> Result<(), error::StoreError> {
    sqlx::query!("-- store::durable\nset local synchronous_commit = on").execute(conn).await?;
    Ok(())
}

/// Begins a transaction that is durable before its COMMIT is answered (see [`durable`]), in one exchange.
///
/// # Errors
/// When Postgres does.
pub async fn begin_durable(
    pool: &sqlx::PgPool,
) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, error::StoreError> {
    Ok(pool.begin_with("begin; set local synchronous_commit = on").await?)
}
