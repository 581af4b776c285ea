//! What the demonstration says, so that a person can follow it.

use std::io::Write;

/// Writes to standard output; a closed pipe ends nothing.
#[derive(Debug, Default)]
pub struct Telling {
    scene: usize,
}

impl Telling {
    /// A heading.
    pub fn scene(&mut self, title: &str, story: &str) {
        self.scene += 1;
        say(&format!("\n{:>2}. {title}\n    {story}", self.scene));
    }

    /// Something that is done, as one would type it.
    pub fn does(&self, what: &str) {
        say(&format!("    $ {what}"));
    }

    /// Something that was seen.
    pub fn sees(&self, what: &str) {
        say(&format!("      {what}"));
    }

    /// A line of its own.
    pub fn says(&self, what: &str) {
        say(what);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
