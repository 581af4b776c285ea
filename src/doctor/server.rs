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
    store::{doctor, error::StoreError},
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
    durability(settings, &server, report);
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

fn durability(settings: &Settings, server: &doctor::Server, report: &mut Report) {
    let subject = "durability";
    if server.read_only {
        report.add(Level::Failed, subject, "the server only reads: a standby, or a primary that was demoted");
    }
    if !server.fsync {
        report.add(
            Level::Failed,
            subject,
            "fsync is off: a crash of the machine loses what was answered, and it is sent again",
        );
    }
    if !server.full_page_writes {
        report.add(Level::Warning, subject, "full_page_writes is off: a torn page cannot be repaired");
    }
    if server.standbys > 0 && server.synchronous_standbys.is_empty() {
        let level = if settings.instance.accept_lossy_failover { Level::Warning } else { Level::Failed };
        report.add(
            level,
            subject,
            format!("{} standbys and none of them synchronous: a failover may double effects", server.standbys),
        );
    }
    if report.lines.iter().all(|line| line.subject != subject) {
        let text = format!(
            "Postgres {}, fsync on, {} standbys; the ledger's own commits are synchronous",
            server.version, server.standbys
        );
        report.add(Level::Ok, subject, text);
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
