//! What a session with Postgres needs, how it is opened, and when it is retired.
//!
//! Behind PgBouncer in transaction mode a session is nobody's own: what it needs comes from the role, and prepared
//! statements must be kept by the pooler (1.21 or newer, `max_prepared_statements` above 0). Both are looked at before the
//! first intent is claimed.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::config::settings::Pooler;

/// Plans that keep using the indexes whatever the size of the backlog, the isolation that the moves are made for (lock a
/// row, then read its evidence), and limits. As `current_setting` shows them.
const NEEDED: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    // A plan made while a table was empty stays for the life of the session: it must not read the table as a whole.
    ("enable_seqscan", "off"),
    ("jit", "off"),
    ("default_transaction_isolation", "read committed"),
    // A row that somebody holds must not stop a loop; the transaction of a machine that is gone must not hold one.
    ("lock_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "1min"),
];

/// Why the sessions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Postgres, the pooler or the connection.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// The pooler refuses what a session of its own needs.
    #[error(
        "database.url leads to a pooler that refuses settings of a session ({0}); give a direct URL, or set database.pooler = \"transaction\""
    )]
    Refused(String),
    /// A setting is not in force although it was asked for.
    #[error(
        "{name} is {found} and not {needed}: a pooler stands between that drops settings of a session; give a direct URL, or set database.pooler = \"transaction\""
    )]
    Dropped {
        /// The setting.
        name: &'static str,
        /// As it is.
        found: String,
        /// As it must be.
        needed: &'static str,
    },
    /// Behind a pooler the role must bring the setting.
    #[error("behind a pooler the role brings the settings, and {name} is {found}; as the owner of the role run: {sql}")]
    RoleLacks {
        /// The setting.
        name: &'static str,
        /// As it is.
        found: String,
        /// What to run.
        sql: String,
    },
    /// Prepared statements of one client are lost or met by another.
    #[error(
        "the pooler does not keep prepared statements ({0}); PgBouncer does from 1.21 on with max_prepared_statements above 0, otherwise give a direct URL"
    )]
    NotPrepared(String),
}

/// How a session is opened.
///
/// # Errors
/// When the URL cannot be read.
pub fn options(url: &str, pooler: Pooler) -> Result<PgConnectOptions, sqlx::Error> {
    let options = PgConnectOptions::from_str(url)?.application_name("settled");
    Ok(match pooler {
        Pooler::None => options.options(NEEDED),
        Pooler::Transaction => options.extra_float_digits(None),
    })
}

/// Whether sessions have what they need; to be asked once, before anything is claimed.
///
/// # Errors
/// [`SessionError`] says what stands in the way and what to do.
pub async fn check(options: &PgConnectOptions, pooler: Pooler) -> Result<(), SessionError> {
    let mut conn = PgConnection::connect_with(options).await.map_err(refusal)?;
    for (name, needed) in NEEDED {
        let found = setting(&mut conn, name).await?;
        if found == needed {
            continue;
        }
        return Err(match pooler {
            Pooler::None => SessionError::Dropped { name, found, needed },
            Pooler::Transaction => SessionError::RoleLacks { name, found, sql: all_of_them(options.get_username()) },
        });
    }
    match pooler {
        Pooler::None => {}
        Pooler::Transaction => prepared(&mut conn, options).await?,
    }
    conn.close().await?;
    Ok(())
}

/// PgBouncer answers 08P01 to a startup parameter that it does not know.
fn refusal(error: sqlx::Error) -> SessionError {
    match error.as_database_error().map(|e| e.message().to_owned()) {
        Some(told) if told.contains("startup parameter") => SessionError::Refused(told),
        Some(_) | None => SessionError::Database(error),
    }
}

async fn setting(conn: &mut PgConnection, name: &str) -> Result<String, SessionError> {
    // By the simple protocol: whether prepared statements work is the next question.
    let quoted = name.replace('\'', "''");
    let sql = format!("-- session::setting\nselect current_setting('{quoted}')");
    let row = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).fetch_one(conn).await?;
    Ok(sqlx::Row::try_get::<String, _>(&row, 0)?)
}

fn all_of_them(role: &str) -> String {
    let quoted = role.replace('"', "\"\"");
    NEEDED.map(|(name, needed)| format!("alter role \"{quoted}\" set {name} = '{needed}';")).join(" ")
}

/// Two clients in turn, with statements that have the same names on both sides.
async fn prepared(first: &mut PgConnection, options: &PgConnectOptions) -> Result<(), SessionError> {
    let mut second = PgConnection::connect_with(options).await.map_err(refusal)?;
    for round in 0..4_i32 {
        for conn in [&mut *first, &mut second] {
            let asked = sqlx::query_scalar!(
                r#"-- session::prepared
                select $1::integer + 1 as "next!""#,
                round
            );
            match asked.fetch_one(conn).await {
                Ok(next) if next == round + 1 => {}
                Ok(_) => return Err(SessionError::NotPrepared("another client's statement answered".to_owned())),
                Err(sqlx::Error::Database(e)) => return Err(SessionError::NotPrepared(e.message().to_owned())),
                Err(error) => return Err(error.into()),
            }
        }
    }
    second.close().await?;
    Ok(())
}

/// Closes sessions that were opened before a moment: after a failover they lead to a server that only reads.
#[derive(Debug, Clone, Default)]
pub struct Retirement(Arc<Mutex<Option<Instant>>>);

impl Retirement {
    /// Every session that is open now is closed before it is used again.
    pub fn all(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn spares(&self, age: std::time::Duration) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_none_or(|since| age < since.elapsed())
    }

    /// A pool whose sessions obey.
    pub fn over(&self, pool: PgPoolOptions) -> PgPoolOptions {
        let this = self.clone();
        pool.before_acquire(move |_, meta| {
            let spared = this.spares(meta.age);
            Box::pin(async move { Ok(spared) })
        })
    }
}
