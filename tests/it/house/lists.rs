//! The closed lists of failure modes and reasons: the program, `docs/failure-modes.md`, the tests and the numbers agree.

use std::collections::BTreeSet;

use settled::{
    domain::{failure_mode::FailureMode, reason::Reason},
    telemetry::metrics::Metrics,
};

use super::{
    cases_list::tests,
    papers::{backticked, read, root},
};

/// The first name in back-ticks of each row below a title, and the last one.
fn rows(title: &str) -> Vec<(String, String)> {
    let text = read(&root().join("docs/failure-modes.md"));
    let part = text.split(&format!("\n## {title}\n")).nth(1).unwrap_or_else(|| panic!("no {title}"));
    let part = part.split("\n## ").next().unwrap();
    part.lines()
        .filter(|line| line.starts_with("| `") || line.starts_with("| [`"))
        .map(|line| {
            let names = backticked(line);
            (names.first().unwrap().clone(), names.last().unwrap().clone())
        })
        .collect()
}

fn agree(title: &str, all: &[&str]) {
    let rows = rows(title);
    let named: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(named, all, "{title}");
    let there = tests();
    let missing: Vec<_> = rows.iter().filter(|(_, test)| !there.contains(test)).collect();
    assert!(missing.is_empty(), "{title} name tests that do not exist: {missing:#?}");
}

#[test]
fn every_failure_mode_is_told_and_has_a_test() {
    agree("Failure modes", &FailureMode::ALL.map(FailureMode::as_str));
}

#[test]
fn every_reason_is_told_and_has_a_test() {
    agree("Reasons", &Reason::ALL.map(Reason::as_str));
}

#[test]
fn every_failure_mode_and_reason_is_a_label_from_the_start() {
    let metrics = Metrics::new();
    metrics.escalations_open(&Reason::ALL.map(|reason| (reason.as_str().to_owned(), 0)));
    let text = metrics.text().unwrap();
    let labels = |start: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| line.strip_prefix(start)?.split('"').next().map(str::to_owned)).collect()
    };
    let modes = labels("settled_failure_modes_total{mode=\"");
    assert_eq!(modes, FailureMode::ALL.iter().map(|mode| mode.as_str().to_owned()).collect());
    let reasons = labels("settled_escalations_open{reason=\"");
    assert_eq!(reasons, Reason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect());
}
