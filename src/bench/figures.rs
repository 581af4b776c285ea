//! What a run tells: one JSON object, or a table for people.

use std::fmt::Write;

use serde::Serialize;

use super::{
    drain::Drain,
    fault::Faulty,
    mail::Mails,
    rows::{Among, Backlog},
    storm::Storm,
};

/// The machine of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Flushes of one 8 kB write that the disk does in a second.
    pub fdatasync_per_second: f64,
}

/// Producers by SQL, beside bare inserts of the same bytes.
#[derive(Debug, Clone, Serialize)]
pub struct Enqueued {
    /// Bare inserts a second, one a transaction, 16 clients.
    pub bare_per_second: f64,
    /// `settled.enqueue` a second, one a transaction, 16 clients.
    pub single_per_second: f64,
    /// The one to the other.
    pub single_to_bare: f64,
    /// 99 of 100 calls took at most so long, milliseconds.
    pub single_p99_ms: f64,
    /// Rows a second of `insert … select unnest`, 500 a transaction, one client.
    pub bare_bulk_per_second: f64,
    /// `settled.enqueue_many`, 500 a transaction, one client.
    pub bulk_per_second: f64,
    /// The one to the other.
    pub bulk_to_bare: f64,
}

/// From the start of the call to the arrival, at a steady rate.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// `sql` or `http`.
    pub by: &'static str,
    /// Intents a second.
    pub per_second: u32,
    /// Half of them took at most so long, milliseconds.
    pub p50_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// CPU of daemon and Postgres for one, enqueue included, microseconds.
    pub cpu_us: f64,
    /// References that never arrived.
    pub lost: usize,
    /// References that arrived more than once.
    pub doubled: usize,
}

/// The figures of one run. What was not measured is missing.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Where.
    pub machine: Machine,
    /// Enqueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueue: Option<Enqueued>,
    /// Deliveries from a backlog, by sends at the same time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<Drain>,
    /// The same with 64, of a backlog that is older than the last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_checkpoint: Option<Drain>,
    /// Share of a core that daemon and Postgres use while nothing is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_cpu_share: Option<f64>,
    /// Enqueue to arrival.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Latency>,
    /// Mails, by connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mail: Vec<Mails>,
    /// `--fault`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Faulty>,
    /// `--rows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Among>,
    /// `--storm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<Storm>,
    /// `--backlog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Backlog>,
}

impl Figures {
    pub(super) fn of(machine: Machine) -> Self {
        Self {
            machine,
            enqueue: None,
            drains: Vec::new(),
            after_checkpoint: None,
            idle_cpu_share: None,
            latency: Vec::new(),
            mail: Vec::new(),
            fault: None,
            rows: None,
            storm: None,
            backlog: None,
        }
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let mut table = Table::default();
        table.row(
            "machine",
            format!("{} cores, {:.0} fdatasync/s", self.machine.cores, self.machine.fdatasync_per_second),
        );
        self.ordinary(&mut table);
        self.chosen(&mut table);
        table.0.trim_end().to_owned()
    }

    fn ordinary(&self, table: &mut Table) {
        if let Some(e) = &self.enqueue {
            table.row(
                "enqueue by SQL, 16 clients",
                format!(
                    "{:.0}/s = {:.2} of bare inserts ({:.0}/s), p99 {:.1} ms",
                    e.single_per_second, e.single_to_bare, e.bare_per_second, e.single_p99_ms
                ),
            );
            table.row(
                "enqueue in bulk, 500 a call",
                format!(
                    "{:.0}/s = {:.2} of an insert from unnest ({:.0}/s)",
                    e.bulk_per_second, e.bulk_to_bare, e.bare_bulk_per_second
                ),
            );
        }
        for d in &self.drains {
            table.drain(&format!("deliveries, {} at once", d.concurrency), d);
        }
        if let Some(d) = &self.after_checkpoint {
            table.drain("  64 at once, older than a checkpoint", d);
        }
        if let Some(idle) = self.idle_cpu_share {
            table.row("idle, daemon and Postgres", format!("{:.1} % of a core", idle * 100.0));
        }
        for l in &self.latency {
            table.row(
                &format!("enqueue by {} to arrival, {}/s", l.by, l.per_second),
                format!(
                    "p50 {:.1} ms, p99 {:.1} ms, {:.0} us CPU each; lost={} doubled={}",
                    l.p50_ms, l.p99_ms, l.cpu_us, l.lost, l.doubled
                ),
            );
        }
        for m in &self.mail {
            table.row(
                &format!("mail, {} connections", m.connections),
                format!(
                    "{:.0}/s = {:.0} × lettre pooled ({:.0}/s); lost={} doubled={}",
                    m.per_second, m.to_lettre, m.lettre_per_second, m.lost, m.doubled
                ),
            );
        }
    }

    fn chosen(&self, table: &mut Table) {
        if let Some(f) = &self.fault {
            table.row("sends that went wrong", format!("{:?} of {} intents", f.met, f.intents));
            table.row(
                "what became of them",
                format!(
                    "lost={} doubled={} unknown={} refused={} left-to-a-person={} open={}",
                    f.lost, f.doubled, f.unknown, f.refused, f.left_to_a_person, f.open
                ),
            );
            table.row("open escalations", format!("{:?}", f.escalations));
            table.row(
                "until everything had its end",
                format!(
                    "{:.1} s; {:.0} us daemon + {:.0} us Postgres an intent, peak {:.1} MB",
                    f.seconds, f.daemon_cpu_us, f.postgres_cpu_us, f.daemon_peak_mb
                ),
            );
        }
        if let Some(r) = &self.rows {
            table.row("settled rows", format!("{} in {:.0} s", r.rows, r.fill_seconds));
            table.row(
                "enqueues among them",
                format!(
                    "{:.0}/s = {:.2} of the empty ledger ({:.0}/s)",
                    r.enqueues_among, r.enqueue_ratio, r.enqueues_empty
                ),
            );
            table.drain("deliveries, empty ledger", &r.empty);
            table.drain(&format!("deliveries among them = {:.2}", r.delivery_ratio), &r.among);
        }
        if let Some(s) = &self.storm {
            table.row(
                "storm",
                format!(
                    "{} effects asked for {} times each at {:.0}/s, {} sends failed",
                    s.effects, s.repeaters, s.calls_per_second, s.failed_sends
                ),
            );
            table.row(
                "enqueue p99",
                format!("{:.1} ms = {:.1} × the quiet {:.1} ms", s.storm_p99_ms, s.to_quiet, s.quiet_p99_ms),
            );
            table.row(
                "what became of them",
                format!(
                    "lost={} doubled={} left-to-a-person={} after {:.0} s",
                    s.lost, s.doubled, s.left_to_a_person, s.seconds
                ),
            );
        }
        if let Some(b) = &self.backlog {
            table.row("backlog", format!("{} rows in {:.0} s", b.rows, b.fill_seconds));
            table.row(
                "the daemon",
                format!(
                    "{:.0}/s for {:.0} s, peak {:.1} MB; doubled={}",
                    b.per_second, b.seconds, b.daemon_peak_mb, b.doubled
                ),
            );
        }
    }
}

#[derive(Default)]
struct Table(String);

impl Table {
    fn row(&mut self, what: &str, figure: impl AsRef<str>) {
        // Writing to a string does not fail.
        let _written = writeln!(self.0, "{what:<40} {}", figure.as_ref());
    }

    fn drain(&mut self, what: &str, d: &Drain) {
        self.row(
            what,
            format!(
                "{:.0}/s = {:.2} of a bare loop ({:.0}/s), {:.2} of one with a connection each ({:.0}/s)",
                d.per_second, d.to_kept, d.kept_per_second, d.to_fresh, d.fresh_per_second
            ),
        );
        self.row(
            "",
            format!(
                "CPU s/1000: {:.3} daemon + {:.3} Postgres; WAL {:.0} + {:.0} B, table {:.0} B an intent; peak {:.1} MB; lost={} doubled={}",
                d.daemon_cpu_us / 1000.0,
                d.postgres_cpu_us / 1000.0,
                d.enqueue_wal_bytes,
                d.wal_bytes,
                d.table_bytes,
                d.daemon_peak_mb,
                d.lost,
                d.doubled
            ),
        );
    }
}
