//! The only place that prints: data on stdout, words on stderr.

use std::io::Write;

use serde::Serialize;

use crate::domain::plain::{is_odd, plain};

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    /// Machine-readable.
    pub(super) json: bool,
}

impl Output {
    /// One value: JSON, or the lines that `text` makes of it.
    pub(super) fn value<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let mut line = if self.json { json(value)? } else { text(value) };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        write_all(&line)
    }

    /// Many values: one JSON object a line, or a table.
    pub(super) fn rows<T: Serialize>(
        self,
        rows: &[T],
        head: &[&str],
        cells: impl Fn(&T) -> Vec<String>,
    ) -> anyhow::Result<()> {
        if self.json {
            let mut text = String::new();
            for row in rows {
                text.push_str(&json(row)?);
                text.push('\n');
            }
            return write_all(&text);
        }
        let cells = |row| cells(row).iter().map(|cell| plain(cell)).collect();
        write_all(&table(head, &rows.iter().map(cells).collect::<Vec<_>>()))
    }

    /// Words for a person, on stderr; silent with `--json`.
    pub(super) fn say(self, words: &str) {
        if !self.json {
            let _ = writeln!(std::io::stderr().lock(), "{}", shown(words));
        }
    }
}

/// An error and its causes, on stderr.
pub(super) fn complain(error: &anyhow::Error) {
    let _ = std::io::stderr().lock().write_all(shown(&complaint(error)).as_bytes());
}

/// A cause that the line before has said already is left out: many errors hold the text of their cause.
fn complaint(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    let mut text = format!("settled: {said}\n");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !said.contains(&cause) {
            text.push_str(&format!("  because: {cause}\n"));
            said = cause;
        }
    }
    text
}

/// JSON in one line. What a terminal would obey is escaped; it can stand in strings only, and means the same.
fn json<T: Serialize>(value: &T) -> anyhow::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.contains(is_odd) {
        return Ok(text);
    }
    // All of these are below U+10000, so one escape is enough.
    let escaped = |c: char| if is_odd(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Ok(text.chars().map(escaped).collect())
}

/// Lines in which nothing commands the terminal: the last net, whatever made them.
fn shown(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Text, without what a terminal would obey.
pub(super) fn write_all(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(shown(text).as_bytes()) {
        // The reader went away (`settled list | head`); that is no failure of ours.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(cell);
            text.push_str(&" ".repeat(width.saturating_sub(cell.chars().count()) + 2));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    };
    let mut text = line(&mut head.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn a_cause_that_was_said_already_is_not_said_again() {
        let refused = std::io::Error::other("connection refused");
        let told =
            anyhow::Error::new(refused).context("connect: connection refused").context("the database cannot be used");
        assert_eq!(complaint(&told), "settled: the database cannot be used\n  because: connect: connection refused\n");
    }
}
