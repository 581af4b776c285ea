//! What was proven, what failed, what could not be seen.

use serde::Serialize;

use crate::config::check::{Level, Report};

/// The lines of the table, and their sum.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// In order.
    pub report: Report,
    /// Counted.
    pub sum: Sum,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Sum {
    /// Guarantees that were seen to hold.
    pub verified: u32,
    /// Guarantees that were seen not to hold.
    pub failed: u32,
    /// Guarantees about which nothing could be seen.
    pub not_verified: u32,
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "verified={} failed={} not_verified={}", self.verified, self.failed, self.not_verified)
    }
}

impl Findings {
    /// Seen to hold.
    pub(super) fn verified(&mut self, subject: &str, text: impl Into<String>) {
        self.sum.verified += 1;
        self.report.add(Level::Ok, subject, text);
    }

    /// Seen not to hold.
    pub(super) fn failed(&mut self, subject: &str, text: impl Into<String>) {
        self.sum.failed += 1;
        self.report.add(Level::Failed, subject, text);
    }

    /// Nothing could be seen.
    pub(super) fn unseen(&mut self, subject: &str, text: impl Into<String>) {
        self.sum.not_verified += 1;
        self.report.add(Level::Warning, subject, text);
    }

    /// Said beside them; it is no guarantee and is not counted.
    pub(super) fn told(&mut self, subject: &str, text: impl Into<String>) {
        self.report.add(Level::Ok, subject, text);
    }

    /// One guarantee with what was seen of it.
    pub(super) fn either(&mut self, holds: bool, subject: &str, guarantee: &str, seen: impl std::fmt::Display) {
        let text = format!("{guarantee}: {seen}");
        if holds { self.verified(subject, text) } else { self.failed(subject, text) }
    }
}
