//! Brings a database to this version. Forward only; several processes at once wait for each other by an advisory lock
//! that ends with its transaction.

use sqlx::{Connection, PgConnection};

use super::MIGRATOR;

/// Why a database was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The canonical form is defined over Unicode text.
    #[error("the database has encoding {0}; settled needs UTF8")]
    Encoding(String),
    /// Postgres, or the connection.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// A migration failed, or the database is newer than this version.
    #[error("migration: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

/// Applies what is missing and returns the version the database is at. The connection must be of the
/// owner.
///
/// # Errors
/// When the encoding is not UTF8, a migration fails, or the database is newer.
pub async fn run(conn: &mut PgConnection) -> Result<i64, MigrateError> {
    let encoding = sqlx::query_scalar!(
        r#"-- migrations::encoding
        select current_setting('server_encoding') as "encoding!""#
    )
    .fetch_one(&mut *conn)
    .await?;
    if encoding != "UTF8" {
        return Err(MigrateError::Encoding(encoding));
    }
    // One transaction for all of it, and a lock that ends with it: through a pooler a lock of the session would stay behind.
    let mut tx = conn.begin().await?;
    sqlx::query!("-- migrations::lock\nselect pg_advisory_xact_lock(hashtext('settled'), hashtext('migrate'))")
        .execute(&mut *tx)
        .await?;
    let mut migrator = sqlx::migrate!();
    migrator.set_locking(false).run(&mut *tx).await?;
    tx.commit().await?;
    Ok(expected())
}

/// The version that this build needs.
pub fn expected() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// The version the database is at; `None` when it was never migrated.
///
/// # Errors
/// When Postgres does.
pub async fn version(conn: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    // The table belongs to the migrator and may not exist, so no checked macro can name it.
    let there = sqlx::query_scalar!(
        r#"-- migrations::there
        select to_regclass('public._sqlx_migrations') is not null as "there!""#
    )
    .fetch_one(&mut *conn)
    .await?;
    if !there {
        return Ok(None);
    }
    sqlx::query_scalar("-- migrations::version\nselect max(version) from public._sqlx_migrations where success")
        .fetch_one(conn)
        .await
}
