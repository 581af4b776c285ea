//! What the daemon says about itself: log lines on stderr, numbers for Prometheus. Never payloads, recipients or secrets.

pub mod bar;
pub mod metrics;
pub mod notices;
pub mod progress;

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::settings::{LogForm, Telemetry};

/// The filter of the configuration cannot be read, or logging was set up twice.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter.
    #[error("telemetry.level: `{0}` is no level or filter")]
    Filter(String),
    /// Twice.
    #[error("logging was set up twice")]
    Twice,
}

/// Sets logging up for the whole process; text or JSON lines on stderr.
///
/// # Errors
/// On a filter that cannot be read, and on the second call.
pub fn init(settings: &Telemetry) -> Result<(), TelemetryError> {
    let filter = filter(&settings.level)?;
    // Warnings of Postgres are counted whatever the log shows.
    let registry = tracing_subscriber::registry().with(notices::layer());
    // Colours are for people; in a journal or a file they would be noise.
    let colours = std::io::stderr().is_terminal();
    match settings.log {
        LogForm::Text => {
            let lines = fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
            registry.with(lines.with_filter(filter)).try_init()
        }
        LogForm::Json => {
            let lines = fmt::layer().json().flatten_event(true).with_writer(std::io::stderr);
            registry.with(lines.with_filter(filter)).try_init()
        }
    }
    .map_err(|_| TelemetryError::Twice)
}

/// A library that writes whole conversations at its lowest level: the password of the mailbox, and mail.
const SILENT: &str = "async_imap::imap_stream=off";

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let unreadable = || TelemetryError::Filter(level.to_owned());
    let filter = EnvFilter::try_new(level).map_err(|_| unreadable())?;
    Ok(filter.add_directive(SILENT.parse().map_err(|_| unreadable())?))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn conversations_with_a_mailbox_are_not_written_at_any_level() {
        for level in ["trace", "debug,async_imap=trace", "async_imap::imap_stream=trace"] {
            let read = filter(level);
            assert!(read.is_ok(), "{level}");
            let lines = fmt::layer().with_writer(std::io::sink).with_filter(read.unwrap_or_default());
            let written = tracing::subscriber::with_default(
                tracing_subscriber::registry().with(lines),
                || tracing::enabled!(target: "async_imap::imap_stream", Level::TRACE),
            );
            assert!(!written, "{level}");
        }
    }
}
