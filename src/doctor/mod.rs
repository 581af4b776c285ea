//! `settled doctor`: this installation as it stands, by reading only. The files were looked at by `check`, a destination is
//! asked by `destinations test`, and `verify` sends canaries.

mod ledger;
mod server;

use sqlx::{Connection, PgConnection};

use crate::{
    config::{
        check::{Level, Report},
        settings::{Pooler, Settings},
    },
    store::{self, error::StoreError, session},
};

/// Looks at everything and says what to do about what is not as it should be.
pub async fn run(settings: &Settings, url: &str) -> Report {
    let mut report = Report::default();
    secrets(settings, &mut report);
    match connect(url, settings.database.pooler, &mut report).await {
        Ok(mut conn) => {
            if let Err(error) = ask(settings, &mut conn, &mut report).await {
                report.add(Level::Failed, "database", format!("it stopped answering: {error}"));
            }
        }
        Err(error) => report.add(Level::Failed, "database", error.to_string()),
    }
    report
}

async fn connect(url: &str, pooler: Pooler, report: &mut Report) -> Result<PgConnection, session::SessionError> {
    let options = session::options(url, pooler)?;
    session::check(&options, pooler).await?;
    report.add(Level::Ok, "sessions", "they keep the settings and statements that the daemon needs");
    Ok(PgConnection::connect_with(&options).await?)
}

async fn ask(settings: &Settings, conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    let expected = store::migrations::expected();
    let found = store::migrations::version(conn).await?;
    if found != Some(expected) {
        let found = found.map_or_else(|| "holds no ledger".to_owned(), |version| format!("is at version {version}"));
        report.add(
            Level::Failed,
            "schema",
            format!("the database {found}, this build needs {expected}: run `settled migrate`"),
        );
        return Ok(());
    }
    report.add(Level::Ok, "schema", format!("version {expected}"));
    server::look(settings, conn, report).await?;
    ledger::look(settings, conn, report).await
}

/// The secrets of keys; those of destinations are looked at by building their channels in `check`.
fn secrets(settings: &Settings, report: &mut Report) {
    match settings.keys.load() {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                report.add(Level::Warning, "secrets", warning.clone());
            }
            let known: Vec<&str> = loaded.secrets.iter().map(|(kid, _)| kid.as_str()).collect();
            report.add(Level::Ok, "secrets", format!("`{}` is active; readable: {}", loaded.active, known.join(", ")));
        }
        Err(error) => report.add(Level::Failed, "secrets", error.to_string()),
    }
}

/// "90 s", "4 h": enough for a person.
fn age(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
