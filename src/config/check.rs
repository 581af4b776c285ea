//! `settled check`: the files, offline, one line for each thing that was looked at.

use std::{collections::BTreeSet, path::Path, time::Duration};

use humantime::format_duration;

use super::{
    destination::Destination,
    load::ConfigError,
    retention::{Windows, hours},
    rules,
    secret::SecretRef,
    settings::Settings,
};
use crate::domain::{
    absence,
    intent::{ChannelKind, InDoubt},
};

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Holds.
    Ok,
    /// Works, but somebody should look.
    Warning,
    /// Start is refused.
    Failed,
}

/// One line.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Line {
    /// How it is meant.
    pub level: Level,
    /// What was looked at.
    pub subject: String,
    /// What was found.
    pub text: String,
}

/// Everything that was looked at.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    /// In order.
    pub lines: Vec<Line>,
}

impl Report {
    /// One more line.
    pub fn add(&mut self, level: Level, subject: impl Into<String>, text: impl Into<String>) {
        self.lines.push(Line { level, subject: subject.into(), text: text.into() });
    }

    /// The worst line.
    pub fn worst(&self) -> Level {
        self.lines.iter().map(|l| l.level).max().unwrap_or(Level::Ok)
    }

    /// The configuration could not be read at all.
    pub fn unreadable(errors: &[ConfigError]) -> Self {
        let mut report = Self::default();
        for error in errors {
            report.add(Level::Failed, error.key.clone(), format!("{}: {}", error.file, error.rule));
        }
        report
    }
}

/// Looks at everything. `adapter` builds the destination's channel and look-up and says what they object to; configuration
/// knows no adapters.
pub fn run(settings: &Settings, file: &str, adapter: &dyn Fn(&Destination) -> Vec<String>) -> Report {
    let mut report = Report::default();
    report.add(Level::Ok, "keys of the file", format!("{file}: no unknown keys"));
    for error in rules::broken(settings, file) {
        report.add(Level::Failed, error.key, error.rule);
    }
    let windows = Windows::of(settings);
    if windows.gap().is_zero() {
        report.add(
            Level::Ok,
            "retention",
            format!("{}; {} h to spare", windows.words(), hours(windows.keys.saturating_sub(windows.needed()))),
        );
    }
    secrets(settings, &mut report);
    for destination in &settings.destinations {
        let objections = adapter(destination);
        let subject = format!("destination {}", destination.name);
        for objection in &objections {
            report.add(Level::Failed, subject.clone(), objection.clone());
        }
        report.add(Level::Ok, subject.clone(), effective(destination));
        report.add(Level::Ok, subject.clone(), format!("in doubt: {}", doubt_in_words(destination)));
        if let Some(look_up) = &destination.look_up {
            short_proof(look_up.lag, settings.dispatcher.poll_max, subject, &mut report);
        }
    }
    report
}

/// A proof that goes stale before the dispatcher looks is asked for again and again.
fn short_proof(lag: Duration, poll_max: Duration, subject: String, report: &mut Report) {
    let usable = absence::proof_life(lag).saturating_sub(absence::proof_margin(lag));
    if usable <= poll_max {
        let (usable, poll_max) = (format_duration(usable), format_duration(poll_max));
        report.add(
            Level::Warning,
            subject,
            format!(
                "a proof of absence can be used for {usable}, and dispatcher.poll_max is {poll_max}: most go stale"
            ),
        );
    }
}

/// Timeouts, lease, attempts, and who repeats: one line for `check` and for the log at start.
pub fn effective(destination: &Destination) -> String {
    let t = &destination.timeouts;
    let phases = match destination.channel {
        ChannelKind::Webhook | ChannelKind::Sms => format!(
            "connect {}, tls {}, body {}, reply {}",
            format_duration(t.connect),
            format_duration(t.tls),
            format_duration(t.body),
            format_duration(t.reply)
        ),
        ChannelKind::Smtp => format!(
            "connect {}, tls {}, command {}, body {}, final dot {}",
            format_duration(t.connect),
            format_duration(t.tls),
            format_duration(t.command),
            format_duration(t.body),
            format_duration(t.final_dot)
        ),
    };
    format!(
        "{}; {phases}; worst send {}, lease {}; attempts {}, concurrency {}{}; client retries: none",
        destination.channel.as_str(),
        format_duration(destination.worst_send_time()),
        format_duration(destination.lease()),
        destination.limits.attempts,
        destination.limits.concurrency,
        destination.limits.rate.as_ref().map_or_else(String::new, |rate| format!(
            ", at most {:.3} a second, {} at once",
            rate.a_second(),
            rate.burst()
        ))
    )
}

/// What happens when nobody knows whether an attempt arrived, for people.
pub fn doubt_in_words(destination: &Destination) -> String {
    match destination.doubt_policy() {
        InDoubt::Ask => {
            let mut means = Vec::new();
            if let Some(replay) = &destination.replay {
                means.push(format!(
                    "the same call is repeated under the same key for {}",
                    format_duration(replay.key_lifetime.saturating_sub(replay.margin))
                ));
            }
            if let Some(look_up) = &destination.look_up {
                means.push(format!(
                    "the downstream is asked; what it shows is believed absent {} after the last byte at the earliest, \
                     never later than {}",
                    format_duration(look_up.lag),
                    format_duration(look_up.horizon)
                ));
            }
            format!("{}; what stays open goes to a person", means.join("; then "))
        }
        InDoubt::Person => "a person decides; nothing is sent again by itself".to_owned(),
        InDoubt::AtMostOnce => "closed as perhaps sent, counted, never sent again".to_owned(),
        InDoubt::Compensate => match &destination.compensate {
            Some(counter) => format!(
                "a person decides, and may agree to the counter-action through {}: {}",
                counter.destination, counter.reason
            ),
            None => "a person decides; no counter-action is declared".to_owned(),
        },
        InDoubt::Harmless => format!(
            "sent again without asking, because {}",
            destination.reason.as_deref().unwrap_or("(no reason given)")
        ),
    }
}

fn secrets(settings: &Settings, report: &mut Report) {
    for entry in &settings.keys.secrets {
        let subject = format!("secret {}", entry.kid);
        match entry.load() {
            Ok(_) => report.add(Level::Ok, subject, "present, long enough"),
            Err(error) if entry.kid == settings.keys.active => report.add(Level::Failed, subject, error.to_string()),
            Err(error) => report.add(Level::Warning, subject, format!("{error} (not the active one)")),
        }
        if let Some(SecretRef::File(path)) = entry.place() {
            private(&path, report);
        }
    }
    for path in [&settings.database.url_file, &settings.database.migrate_url_file].into_iter().flatten() {
        present(&SecretRef::File(path.clone()), report);
    }
    let mut seen = BTreeSet::new();
    for destination in &settings.destinations {
        for reference in secret_refs(destination) {
            if seen.insert(format!("{reference:?}")) {
                present(&reference, report);
            }
        }
    }
}

fn present(reference: &SecretRef, report: &mut Report) {
    let subject = match reference {
        SecretRef::File(path) => format!("secret file {}", path.display()),
        SecretRef::Env(name) => format!("secret variable {name}"),
    };
    match reference.load() {
        Ok(_) => report.add(Level::Ok, subject, "present"),
        Err(error) => report.add(Level::Failed, subject, error.to_string()),
    }
    if let SecretRef::File(path) = reference {
        private(path, report);
    }
}

/// A secret file that others may read is a warning; one that others may write is a failure.
fn private(path: &Path, report: &mut Report) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(metadata) = std::fs::metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o777;
    let subject = format!("secret file {}", path.display());
    if mode & 0o022 != 0 {
        report.add(Level::Failed, subject, format!("mode {mode:04o}: must not be writable by group or others"));
    } else if mode & 0o007 != 0 {
        report.add(Level::Failed, subject, format!("mode {mode:04o}: must be private, for example chmod 0400"));
    } else if mode & 0o040 != 0 {
        report.add(Level::Warning, subject, format!("mode {mode:04o}: readable by its group"));
    } else {
        report.add(Level::Ok, subject, format!("mode {mode:04o}: private"));
    }
}

/// Every `{ file = … }` or `{ env = … }` in the sections of a destination.
fn secret_refs(destination: &Destination) -> Vec<SecretRef> {
    let mut found = Vec::new();
    let mut sections: Vec<&serde_json::Value> =
        [&destination.webhook, &destination.smtp, &destination.sms].into_iter().flatten().collect();
    if let Some(look_up) = &destination.look_up {
        sections.extend([&look_up.http, &look_up.imap, &look_up.command].into_iter().flatten());
    }
    while let Some(value) = sections.pop() {
        match value {
            serde_json::Value::Object(map) => match (map.len(), serde_json::from_value::<SecretRef>(value.clone())) {
                (1, Ok(reference)) => found.push(reference),
                (_, _) => sections.extend(map.values()),
            },
            serde_json::Value::Array(items) => sections.extend(items),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => {}
        }
    }
    found
}
