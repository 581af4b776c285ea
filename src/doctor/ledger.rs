//! The ledger: what is stuck, in doubt, parked or without controls, and who works on it.

use sqlx::PgConnection;

use super::age;
use crate::{
    config::{
        check::{Level, Report},
        retention::{Windows, hours},
        settings::Settings,
    },
    store::{doctor, error::StoreError, listing},
};

/// Doubt older than this wants a person, seconds.
const OLD_DOUBT: f64 = 24.0 * 3600.0;
/// A self-test older than this says little, days.
const OLD_TEST: i64 = 30;

pub(super) async fn look(settings: &Settings, conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    daemons(settings, conn, report).await?;
    let health = listing::health(conn).await?;
    let now = chrono::Utc::now().timestamp_micros() as f64 / 1e6;
    for (destination, open, since) in &health.unknown {
        let old = now - since;
        let level = if old > OLD_DOUBT { Level::Warning } else { Level::Ok };
        report.add(level, "doubt", format!("{destination}: {open} in doubt, the oldest since {}", age(old)));
    }
    if health.unknown.is_empty() {
        report.add(Level::Ok, "doubt", "nothing is in doubt");
    }
    let waiting: i64 = health.escalations.iter().map(|(_, count)| count).sum();
    let level = if waiting > 0 { Level::Warning } else { Level::Ok };
    report.add(level, "people", format!("{waiting} open escalations: `settled escalations list`"));
    for (scope, count) in &health.pauses {
        report.add(Level::Warning, "pauses", format!("{count} of scope {scope}"));
    }
    controls(settings, conn, report).await?;
    secrets(settings, conn, report).await?;
    let windows = Windows::of(settings);
    report.add(Level::Ok, "repeats", format!("recognised for {} h", hours(windows.keys)));
    Ok(())
}

async fn daemons(settings: &Settings, conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    let all = doctor::daemons(conn).await?;
    let limit = settings.dispatcher.worker_dead_after.as_secs_f64();
    let alive = all.iter().filter(|daemon| daemon.silent < limit).count();
    let level = if alive == 0 { Level::Failed } else { Level::Ok };
    let todo = if alive == 0 { "; nothing is sent until `settled serve` runs" } else { "" };
    report.add(level, "daemons", format!("{alive} alive, {} silent without a goodbye{todo}", all.len() - alive));
    let mut versions: Vec<&str> = all.iter().filter(|d| d.silent < limit).map(|d| d.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        report.add(Level::Warning, "daemons", format!("of several versions: {}", versions.join(", ")));
    }
    Ok(())
}

async fn controls(settings: &Settings, conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    for control in doctor::controls(conn).await? {
        let subject = format!("destination {}", control.destination);
        let declared = settings.destinations.iter().find(|d| d.name == control.destination);
        if declared.is_none() {
            report.add(
                Level::Warning,
                &*subject,
                "published, and not in this configuration: only another daemon can serve it",
            );
        }
        if let Some(why) = &control.parked {
            report.add(
                Level::Failed,
                &*subject,
                format!("parked: {why}; `settled destinations test {} --unpark`", control.destination),
            );
        }
        if declared.is_none_or(|d| d.look_up.is_none()) {
            continue;
        }
        match (&control.test_failed, control.tested_at) {
            (Some(why), _) => report.add(
                Level::Failed,
                &*subject,
                format!("its last self-test failed, so it proves no absence: {why}"),
            ),
            (None, None) => report.add(Level::Warning, &*subject, "was never tested: `settled destinations test`"),
            (None, Some(at)) if (chrono::Utc::now() - at).num_days() > OLD_TEST => {
                report.add(Level::Warning, &*subject, format!("was tested last on {}", at.format("%Y-%m-%d")));
            }
            (None, Some(at)) => report.add(Level::Ok, &*subject, format!("tested on {}", at.format("%Y-%m-%d"))),
        }
        match control.witness {
            Some(seconds) => report.add(Level::Ok, &*subject, format!("its youngest witness is {} old", age(seconds))),
            None => report.add(Level::Warning, &*subject, "has no witness yet, so nothing can be proven absent there"),
        }
    }
    Ok(())
}

async fn secrets(settings: &Settings, conn: &mut PgConnection, report: &mut Report) -> Result<(), StoreError> {
    let Ok(loaded) = settings.keys.load() else { return Ok(()) };
    for (kid, count) in doctor::kids_in_use(conn).await? {
        if loaded.secrets.iter().all(|(known, _)| *known != kid) {
            report.add(Level::Warning, "secrets", format!("`{kid}` is not there and {count} unsettled intents were keyed with it; after a rewind their keys could not be derived again"));
        }
    }
    Ok(())
}
