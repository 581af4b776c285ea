//! Progress of long work, for a person who waits: on stderr, on a terminal only, silent with `--json`.
//!
//! Called by commands that take longer than a moment. A pipe, a log and a service manager never see it.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One bar or spinner; gone when dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// Something that takes its time; `quiet` for machine-readable output.
    pub fn spinning(words: impl Into<String>, quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, target(quiet));
        bar.set_message(words.into());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    /// What it is at.
    pub fn says(&self, words: impl Into<String>) {
        self.0.set_message(words.into());
    }

    /// Shows how much of `total` is there, until `work` is over.
    pub async fn follow<F: Future>(&self, total: u64, count: impl Fn() -> u64 + Send, work: F) -> F::Output {
        self.0.set_length(total);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}") {
            self.0.set_style(style);
        }
        let mut ticks = tokio::time::interval(Duration::from_millis(120));
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = ticks.tick() => self.0.set_position(count()),
            }
        };
        self.0.set_style(ProgressStyle::default_spinner());
        done
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet || !std::io::stderr().is_terminal() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_followed_gives_its_result_and_shows_nothing_without_a_terminal() {
        let bar = Bar::spinning("working", true);
        assert!(bar.0.is_hidden());
        bar.says("still working");
        assert_eq!(bar.follow(3, || 2, async { 7 }).await, 7);
    }
}
