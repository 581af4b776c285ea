//! What must hold before anything starts. Each rule yields an error that names file, key and rule; all are listed at once.

use std::{collections::HashSet, time::Duration};

use super::{
    destination::{Destination, LookUp, LookUpKind},
    load::ConfigError,
    retention::Windows,
    settings::Settings,
};
use crate::domain::intent::{ChannelKind, InDoubt};

/// Collects errors of one file.
struct Broken<'a> {
    file: &'a str,
    found: Vec<ConfigError>,
}

impl Broken<'_> {
    fn unless(&mut self, holds: bool, key: impl Into<String>, rule: impl Into<String>) {
        if !holds {
            self.found.push(ConfigError { file: self.file.to_owned(), key: key.into(), rule: rule.into() });
        }
    }
}

/// Every rule that the settings break.
pub fn broken(settings: &Settings, file: &str) -> Vec<ConfigError> {
    let mut broken = Broken { file, found: Vec::new() };
    instance_and_database(settings, &mut broken);
    keys(settings, &mut broken);
    dispatcher(settings, &mut broken);
    retention(settings, &mut broken);
    let mut names = HashSet::new();
    for (index, destination) in settings.destinations.iter().enumerate() {
        let at = format!("destinations[{index}]");
        broken.unless(
            names.insert(&destination.name),
            format!("{at}.name"),
            format!("must be unique, `{}` is there twice", destination.name),
        );
        one_destination(destination, &at, &mut broken);
        counter_action(destination, &settings.destinations, &at, &mut broken);
        reports(destination, &at, &mut broken);
        if let Some(Err(error)) = destination.canary.as_ref().map(super::canary::Canary::check) {
            broken.unless(false, format!("{at}.canary.{}", error.field), error.rule);
        }
    }
    broken.found
}

fn instance_and_database(settings: &Settings, broken: &mut Broken<'_>) {
    for (key, value) in [("instance.name", &settings.instance.name), ("instance.region", &settings.instance.region)] {
        broken.unless(is_word(value), key, "must be 1 to 63 characters of A-Z a-z 0-9 . _ -");
    }
    let db = &settings.database;
    broken.unless(db.url.is_some() != db.url_file.is_some(), "database.url", "give exactly one of url and url_file");
    broken.unless(
        db.migrate_url.is_none() || db.migrate_url_file.is_none(),
        "database.migrate_url",
        "give at most one of migrate_url and migrate_url_file",
    );
    broken.unless(db.max_connections >= 4, "database.max_connections", "must be at least 4");
    broken.unless(
        db.min_connections <= db.max_connections,
        "database.min_connections",
        "must not be larger than max_connections",
    );
}

fn keys(settings: &Settings, broken: &mut Broken<'_>) {
    let mut kids = HashSet::new();
    for (index, secret) in settings.keys.secrets.iter().enumerate() {
        let at = format!("keys.secrets[{index}]");
        broken.unless(is_word(&secret.kid), format!("{at}.kid"), "must be 1 to 63 characters of A-Z a-z 0-9 . _ -");
        broken.unless(kids.insert(&secret.kid), format!("{at}.kid"), "must be unique");
        broken.unless(secret.place().is_some(), at, "give exactly one of file and env");
    }
    broken.unless(kids.contains(&settings.keys.active), "keys.active", "must be the kid of one of keys.secrets");
}

fn dispatcher(settings: &Settings, broken: &mut Broken<'_>) {
    let d = &settings.dispatcher;
    broken.unless(d.poll_min >= Duration::from_millis(1), "dispatcher.poll_min", "must be at least 1ms");
    broken.unless(d.poll_max >= d.poll_min, "dispatcher.poll_max", "must not be shorter than poll_min");
    broken.unless((1..=1000).contains(&d.batch), "dispatcher.batch", "must be 1 to 1000");
    broken.unless(!d.heartbeat.is_zero(), "dispatcher.heartbeat", "must be longer than 0s");
    broken.unless(
        d.worker_dead_after >= d.heartbeat * 3,
        "dispatcher.worker_dead_after",
        "must be at least three heartbeats",
    );
}

fn retention(settings: &Settings, broken: &mut Broken<'_>) {
    let windows = Windows::of(settings);
    broken.unless(
        windows.gap().is_zero(),
        "retention.keys_days",
        format!("{}; the gap is {} h", windows.words(), windows.gap_hours()),
    );
    broken.unless(
        settings.retention.payload_days <= settings.retention.keys_days,
        "retention.payload_days",
        "must not be more than keys_days",
    );
    broken.unless(settings.retention.tombstone_years >= 1, "retention.tombstone_years", "must be at least 1");
}

fn one_destination(destination: &Destination, at: &str, broken: &mut Broken<'_>) {
    broken.unless(is_destination_name(&destination.name), format!("{at}.name"), "must match [a-z0-9][a-z0-9._-]{0,62}");
    if let Some(scope) = &destination.effect_scope {
        broken.unless(is_destination_name(scope), format!("{at}.effect_scope"), "must match [a-z0-9][a-z0-9._-]{0,62}");
    }
    for (kind, section) in [
        (ChannelKind::Webhook, &destination.webhook),
        (ChannelKind::Smtp, &destination.smtp),
        (ChannelKind::Sms, &destination.sms),
    ] {
        let word = kind.as_str();
        let rule = if kind == destination.channel { "is required by channel" } else { "does not belong to channel" };
        broken.unless(
            section.is_some() == (kind == destination.channel),
            format!("{at}.{word}"),
            format!("{rule} = \"{}\"", destination.channel.as_str()),
        );
    }
    in_doubt(destination, at, broken);
    limits(destination, at, broken);
    canonical(destination, at, broken);
    if let Some(replay) = &destination.replay {
        broken.unless(
            replay.key_lifetime > replay.margin,
            format!("{at}.replay.key_lifetime"),
            "must be longer than margin",
        );
    }
    if let Some(look_up) = &destination.look_up {
        one_look_up(destination, look_up, &format!("{at}.look_up"), broken);
    }
}

fn in_doubt(destination: &Destination, at: &str, broken: &mut Broken<'_>) {
    let key = format!("{at}.in_doubt");
    let can_ask = destination.can_be_asked();
    match destination.in_doubt {
        None => broken.unless(
            can_ask,
            key,
            "is required where there is neither replay nor look_up: person, at_most_once or harmless",
        ),
        Some(InDoubt::Ask) => {
            broken.unless(can_ask, key, "ask needs replay or look_up: there is nothing to ask");
        }
        Some(InDoubt::Harmless) => broken.unless(
            destination.reason.as_deref().is_some_and(|r| !r.trim().is_empty()),
            format!("{at}.reason"),
            "harmless needs a reason: why a second effect changes nothing",
        ),
        Some(InDoubt::Compensate) => broken.unless(
            destination.compensate.is_some(),
            key,
            "compensate needs a declared counter-action: [destinations.compensate]",
        ),
        Some(InDoubt::Person | InDoubt::AtMostOnce) => {}
    }
}

fn reports(destination: &Destination, at: &str, broken: &mut Broken<'_>) {
    if let Some(Err((member, rule))) = destination.sightings.as_ref().map(super::sightings::Sightings::check) {
        broken.unless(false, format!("{at}.sightings.{member}"), rule);
    }
}

fn counter_action(destination: &Destination, all: &[Destination], at: &str, broken: &mut Broken<'_>) {
    let Some(declared) = &destination.compensate else { return };
    let at = format!("{at}.compensate");
    broken.unless(
        destination.in_doubt == Some(InDoubt::Compensate),
        at.as_str(),
        "is declared only where in_doubt = \"compensate\"",
    );
    let other = declared.destination != destination.name && all.iter().any(|d| d.name == declared.destination);
    broken.unless(other, format!("{at}.destination"), "must be the name of another destination of this file");
    if let Err(error) = declared.check() {
        broken.unless(false, format!("{at}.{}", error.field), error.rule);
    }
}

fn limits(destination: &Destination, at: &str, broken: &mut Broken<'_>) {
    let l = &destination.limits;
    broken.unless((1..=1024).contains(&l.concurrency), format!("{at}.limits.concurrency"), "must be 1 to 1024");
    broken.unless((1..=100).contains(&l.attempts), format!("{at}.limits.attempts"), "must be 1 to 100");
    broken.unless(
        l.lease_margin >= Duration::from_secs(1),
        format!("{at}.limits.lease_margin"),
        "must be at least 1s: the lease must outlast the worst send time",
    );
    broken.unless(l.backoff_max >= l.backoff, format!("{at}.limits.backoff_max"), "must not be shorter than backoff");
    broken.unless(l.breaker_after >= 1, format!("{at}.limits.breaker_after"), "must be at least 1");
    broken.unless(l.open_unknowns >= 1, format!("{at}.limits.open_unknowns"), "must be at least 1");
    if let Some(rate) = &l.rate {
        let at = format!("{at}.limits.rate");
        broken.unless(
            rate.per_second.is_some() != rate.per_minute.is_some(),
            at.as_str(),
            "give exactly one of per_second and per_minute",
        );
        let positive = [rate.per_second, rate.per_minute].into_iter().flatten().all(|n| n.is_finite() && n > 0.0);
        broken.unless(positive, at.as_str(), "must be more than 0");
        broken.unless(rate.burst != Some(0), format!("{at}.burst"), "must be at least 1");
    }
    broken.unless(
        l.unreachable_after >= Duration::from_secs(1),
        format!("{at}.limits.unreachable_after"),
        "must be at least 1s",
    );
    broken.unless(
        (1024..=16 * 1024 * 1024).contains(&l.answer_bytes),
        format!("{at}.limits.answer_bytes"),
        "must be 1024 to 16777216",
    );
    let t = &destination.timeouts;
    for (name, value) in [
        ("connect", t.connect),
        ("tls", t.tls),
        ("command", t.command),
        ("body", t.body),
        ("reply", t.reply),
        ("answer", t.answer),
        ("final_dot", t.final_dot),
    ] {
        broken.unless(!value.is_zero(), format!("{at}.timeouts.{name}"), "must be longer than 0s");
    }
    let longest = Duration::from_secs(86_400);
    broken.unless(destination.worst_send_time() <= longest, format!("{at}.timeouts"), "must add up to a day at most");
}

fn canonical(destination: &Destination, at: &str, broken: &mut Broken<'_>) {
    if let Some(pattern) = &destination.reference_pattern {
        broken.unless(
            regex::Regex::new(pattern).is_ok(),
            format!("{at}.reference_pattern"),
            "must be a regular expression over the lower-case reference",
        );
    }
    let c = &destination.canonical;
    let lists = [("times", &c.times), ("sets", &c.sets), ("volatile", &c.volatile)];
    for (name, pointers) in lists {
        broken.unless(
            pointers.iter().all(|p| p.starts_with('/')),
            format!("{at}.canonical.{name}"),
            "must be JSON pointers, such as /due",
        );
    }
    for (index, money) in c.money.iter().enumerate() {
        broken.unless(
            money.at.starts_with('/'),
            format!("{at}.canonical.money[{index}].at"),
            "must be a JSON pointer, such as /amount",
        );
        let code = money.currency.len() == 3 && money.currency.bytes().all(|b| b.is_ascii_uppercase());
        broken.unless(
            code || money.currency.starts_with('/'),
            format!("{at}.canonical.money[{index}].currency"),
            "must be a JSON pointer or an ISO 4217 code",
        );
    }
    broken.unless(
        c.defaults.keys().all(|p| p.starts_with('/')),
        format!("{at}.canonical.defaults"),
        "must be named by JSON pointers, such as \"/currency\"",
    );
}

fn one_look_up(destination: &Destination, look_up: &LookUp, at: &str, broken: &mut Broken<'_>) {
    for (kind, section, word) in [
        (LookUpKind::Http, &look_up.http, "http"),
        (LookUpKind::Imap, &look_up.imap, "imap"),
        (LookUpKind::Command, &look_up.command, "command"),
    ] {
        let rule = if kind == look_up.kind { "is required by kind" } else { "does not belong to this kind" };
        broken.unless(section.is_some() == (kind == look_up.kind), format!("{at}.{word}"), rule);
    }
    broken.unless((1..=10).contains(&look_up.need), format!("{at}.need"), "must be 1 to 10");
    broken.unless(
        !look_up.lag.is_zero(),
        format!("{at}.lag"),
        "must be longer than 0s: a proof of absence lives no longer than the lag, so nothing could be sent on it",
    );
    broken.unless(look_up.per_minute >= 1, format!("{at}.per_minute"), "must be at least 1");
    broken.unless((0.0..=1.0).contains(&look_up.audit.share), format!("{at}.audit.share"), "must be 0 to 1");
    broken.unless(
        look_up.questions >= look_up.need,
        format!("{at}.questions"),
        "must not be less than need, or absence can never be proven",
    );
    let earliest = destination.lease() + look_up.lag + look_up.spacing * look_up.need.saturating_sub(1);
    broken.unless(
        look_up.horizon > earliest,
        format!("{at}.horizon"),
        format!("must be longer than lease + lag + spacing ({} s), or absence can never be proven", earliest.as_secs()),
    );
}

fn is_word(value: &str) -> bool {
    (1..=63).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_destination_name(value: &str) -> bool {
    (1..=63).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        && value.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
}
