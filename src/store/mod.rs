//! Every SQL statement, one file a table. Functions take a connection, so a caller with a transaction can join.

pub mod destinations;
pub mod producers;
pub mod requests;

/// The migrations, forward only.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
