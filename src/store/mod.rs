//! Every SQL statement, one file a table. Functions take a connection, so a caller with a transaction can join.

pub mod attempts;
pub mod error;
pub mod escalations;
pub mod intents;
pub mod journal;
pub mod listing;
pub mod migrations;
pub mod pauses;
pub mod queue;
pub mod requests;
pub mod story;
pub mod tokens;
pub mod witnesses;
pub mod workers;

/// The migrations, forward only.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();
