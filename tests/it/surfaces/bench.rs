//! `settled bench`: a short run has every figure and loses and doubles nothing. How fast it was is nobody's business here.

use serde_json::Value;

use super::cli::{err, out, settled};

fn bench(arguments: &[&str]) -> Value {
    let output = settled(&[&["bench", "--json"], arguments].concat(), &[]);
    assert!(output.status.success(), "{}", err(&output));
    serde_json::from_str(out(&output).trim()).unwrap()
}

/// The number under a pointer; it must be there and finite.
fn number(figures: &Value, at: &str) -> f64 {
    let found = figures.pointer(at).unwrap_or_else(|| panic!("{at} is missing in {figures}"));
    found.as_f64().unwrap_or_else(|| panic!("{at} is {found}"))
}

fn nothing_lost_or_doubled(figures: &Value, at: &str) {
    for what in ["lost", "doubled"] {
        assert_eq!(number(figures, &format!("{at}/{what}")), 0.0, "{at}/{what} in {figures}");
    }
}

#[test]
fn a_bench_prints_every_figure_and_loses_and_doubles_nothing() {
    let figures = bench(&["--intents", "200", "--seconds", "1", "--concurrency", "1,16"]);
    for at in [
        "/machine/cores",
        "/machine/fdatasync_per_second",
        "/enqueue/single_per_second",
        "/enqueue/single_to_bare",
        "/enqueue/bulk_per_second",
        "/enqueue/bulk_to_bare",
        "/idle_cpu_share",
    ] {
        assert!(number(&figures, at) >= 0.0);
    }
    for (at, concurrency) in [("/drains/0", 1.0), ("/drains/1", 16.0), ("/after_checkpoint", 64.0)] {
        assert_eq!(number(&figures, &format!("{at}/concurrency")), concurrency);
        for name in ["per_second", "to_kept", "to_fresh", "wal_bytes", "enqueue_wal_bytes", "daemon_peak_mb"] {
            assert!(number(&figures, &format!("{at}/{name}")) > 0.0, "{at}/{name} in {figures}");
        }
        for name in ["daemon_cpu_us", "postgres_cpu_us"] {
            assert!(number(&figures, &format!("{at}/{name}")) >= 0.0, "{at}/{name} in {figures}");
        }
        // Vacuum may have given back more than these rows took.
        assert!(number(&figures, &format!("{at}/table_bytes")).is_finite(), "{figures}");
        nothing_lost_or_doubled(&figures, at);
    }
    for (at, by) in [("/latency/0", "sql"), ("/latency/1", "http")] {
        assert_eq!(figures.pointer(at).unwrap()["by"], by);
        assert!(number(&figures, &format!("{at}/p50_ms")) <= number(&figures, &format!("{at}/p99_ms")));
        nothing_lost_or_doubled(&figures, at);
    }
    for (at, connections) in [("/mail/0", 1.0), ("/mail/1", 16.0)] {
        assert_eq!(number(&figures, &format!("{at}/connections")), connections);
        assert!(number(&figures, &format!("{at}/to_lettre")) > 0.0);
        nothing_lost_or_doubled(&figures, at);
    }
}

#[test]
fn answers_that_are_late_cut_lost_or_refused_lose_and_double_nothing() {
    let figures = bench(&["--intents", "300", "--fault", "late=0.03,cut=0.05,lost=0.05,refused=0.03"]);
    nothing_lost_or_doubled(&figures, "/fault");
    for what in ["open", "left_to_a_person"] {
        assert_eq!(number(&figures, &format!("/fault/{what}")), 0.0, "{figures}");
    }
    let met = |fate: &str| figures["fault"]["met"][fate].as_f64().unwrap_or(0.0);
    assert_eq!(number(&figures, "/fault/refused"), met("refused"));
    // What was lost twice was in doubt twice, and is one intent.
    let doubts = number(&figures, "/fault/unknown");
    assert!(doubts > 0.0 && doubts <= met("late") + met("cut") + met("lost"), "{figures}");
}

#[test]
fn a_storm_of_callers_and_failures_makes_one_effect_each() {
    let figures = bench(&["--intents", "600", "--seconds", "2", "--storm"]);
    nothing_lost_or_doubled(&figures, "/storm");
    assert_eq!(number(&figures, "/storm/left_to_a_person"), 0.0, "{figures}");
    assert!(number(&figures, "/storm/failed_sends") > 0.0, "{figures}");
}

#[test]
fn settled_rows_and_due_ones_are_filled_and_worked_among() {
    let figures = bench(&["--intents", "200", "--rows", "3000"]);
    for at in ["/rows/empty", "/rows/among"] {
        nothing_lost_or_doubled(&figures, at);
    }
    assert!(number(&figures, "/rows/enqueue_ratio") > 0.0 && number(&figures, "/rows/delivery_ratio") > 0.0);
    let figures = bench(&["--intents", "200", "--seconds", "2", "--backlog", "3000"]);
    assert_eq!(number(&figures, "/backlog/doubled"), 0.0);
    assert!(number(&figures, "/backlog/per_second") > 0.0 && number(&figures, "/backlog/daemon_peak_mb") > 0.0);
}

#[test]
fn a_share_that_cannot_be_read_is_a_wrong_call() {
    let output = settled(&["bench", "--fault", "late=2"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--fault: late: the share must be from 0 to 1"), "{}", err(&output));
    assert_eq!(settled(&["bench", "--storm", "--rows", "5"], &[]).status.code(), Some(2), "one part at a time");
}
