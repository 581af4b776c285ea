//! Postgres: its clock, its durability, who holds what open.

use std::time::Instant;

use chrono::Utc;
use sqlx::PgConnection;

use super::age;
use crate::{
    config::{
        check::{Level, Report},
        settings::Settings,
    },
    engine::start_checks::{self, Permits},
    store::{self, doctor, error::StoreError, instance::Safety},
};

/// Clocks that differ by more are worth a look; leases do not depend on it, since they use the database's clock alone.
const CLOCKS_APART: f64 = 2.0;
/// A transaction older than this is told, seconds.
const LONG_OPEN: f64 = 60.0;
/// A table with more dead rows than live ones is told from this many on.
const MANY_DEAD: i64 = 10_000;

pub(super) async fn look(settings: &Settings, conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    let began = Instant::now();
    let server = doctor::server(conn).await?;
    let took = began.elapsed();
    let ours = Utc::now() - chrono::TimeDelta::from_std(took / 2).unwrap_or_default();
    let apart = (server.now - ours).as_seconds_f64();
    let level = if apart.abs() > CLOCKS_APART { Level::Warning } else { Level::Ok };
    report.add(
        level,
        "clocks",
        format!("the database is {apart:+.1} s from this machine, measured within {} ms", took.as_millis()),
    );
    let safety = store::instance::safety(conn).await?;
    durability(settings, &server, &safety, report);
    let owner = if server.owner { "owns the ledger" } else { "does not own the ledger" };
    let level = if server.owner { Level::Ok } else { Level::Failed };
    report.add(level, "role", format!("{} {owner}", server.role));
    for odd in doctor::odd_roles(conn).await? {
        report.add(Level::Failed, "roles", format!("{} {}", odd.role, odd.may));
    }
    locks(conn, report).await?;
    for table in doctor::bloat(conn).await? {
        if table.dead > MANY_DEAD && table.dead > table.live {
            let text = format!(
                "settled.{} has {} dead rows beside {} live ones ({} MB): vacuum does not keep up",
                table.name,
                table.dead,
                table.live,
                table.bytes >> 20
            );
            report.add(Level::Warning, "bloat", text);
        }
    }
    Ok(())
}

fn durability(settings: &Settings, server: &doctor::Server, safety: &Safety, report: &mut Report) {
    let subject = "durability";
    if server.read_only {
        report.add(Level::Failed, subject, "the server only reads: a standby, or a primary that was demoted");
    }
    let permits = Permits {
        fsync_off: settings.database.allow_fsync_off,
        lossy_failover: settings.instance.accept_lossy_failover,
    };
    match start_checks::check(safety, permits) {
        Ok(notes) if notes.is_empty() => {
            let text =
                format!("Postgres {}, {} standby(s); what is acknowledged is kept", server.version, safety.standbys);
            report.add(Level::Ok, subject, text);
        }
        Ok(notes) => notes.into_iter().for_each(|note| report.add(Level::Warning, subject, note)),
        Err(refused) => report.add(Level::Failed, subject, refused.to_string()),
    }
}

async fn locks(conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    let open = doctor::open_transactions(conn, LONG_OPEN).await?;
    for transaction in &open {
        let horizon = if transaction.pins_the_horizon {
            "; no dead row can be removed meanwhile, and claims grow slower"
        } else {
            ""
        };
        let text = format!(
            "pid {} ({}) has a transaction open for {}{horizon}",
            transaction.pid,
            transaction.program,
            age(transaction.seconds)
        );
        report.add(Level::Warning, "locks", text);
    }
    let waiting = doctor::waiting(conn).await?;
    for wait in &waiting {
        report.add(
            Level::Warning,
            "locks",
            format!("pid {} waits for {:?} since {}", wait.pid, wait.blockers, age(wait.seconds)),
        );
    }
    if open.is_empty() && waiting.is_empty() {
        report.add(Level::Ok, "locks", "nobody waits, and no transaction is old");
    }
    Ok(())
}
