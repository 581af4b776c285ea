//! The measured lag: how long ordinary sends took to become visible. Absence rests on the declared one, so it is not believed
//! where the measured one comes too near.
//!
//! Rule: while any send of the last day was proven invisible for at least half of the declared lag, absence of that generation
//! is suspended. It recovers a day after the last such send, or as soon as the declared lag is more than twice as long.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::store::{self, error::StoreError};

/// How far back a measurement counts.
pub const WINDOW: Duration = Duration::from_secs(24 * 3600);

/// Why absence of this generation is not believed, if it is not.
///
/// # Errors
/// When Postgres does.
pub(in crate::engine) async fn suspended(
    conn: &mut PgConnection,
    destination: &str,
    generation: &str,
    declared: Duration,
    at: Option<DateTime<Utc>>,
) -> Result<Option<String>, StoreError> {
    let measured = store::audits::measured(conn, destination, generation, WINDOW.as_secs_f64(), at).await?;
    Ok(measured.invisible_for.filter(|seconds| exceeds(*seconds, declared)).map(|seconds| {
        let invisible = Duration::from_secs_f64(seconds.max(0.0).round());
        format!(
            "an ordinary send of the last day was not visible {} after it was accepted, at least half of the declared lag of {}; \
             raise lag or repair the downstream",
            humantime::format_duration(invisible),
            humantime::format_duration(declared),
        )
    }))
}

/// A send that was not visible for so many seconds leaves no room in the declared lag.
pub fn exceeds(invisible_for: f64, declared: Duration) -> bool {
    invisible_for >= declared.as_secs_f64() / 2.0
}
