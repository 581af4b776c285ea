//! Reads `settled.toml`, lays `SETTLED__SECTION__KEY` over it and refuses what cannot work.
//!
//! Called once at start by every command that needs the configuration. Errors name the file, the key path and the rule.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{rules, settings::Settings};

/// Variables with this prefix override keys; two underscores, because Kubernetes makes `SETTLED_PORT` for a service.
pub const PREFIX: &str = "SETTLED__";

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {key}: {rule}")]
pub struct ConfigError {
    /// The file, or the environment variable.
    pub file: String,
    /// Path of the key, `destinations[0].look_up.lag`.
    pub key: String,
    /// What must hold.
    pub rule: String,
}

/// Everything that is wrong, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Where the configuration is looked for when no path is given.
pub fn default_path() -> PathBuf {
    let here = PathBuf::from("settled.toml");
    let of_the_machine = PathBuf::from("/etc/settled/settled.toml");
    // Where neither is there, the complaint names the one that a person would write first.
    if here.exists() || !of_the_machine.exists() { here } else { of_the_machine }
}

/// Reads the file and the environment of this process, and applies every rule.
///
/// # Errors
/// All rules that are broken; or the first thing that cannot be read.
pub fn load(path: &Path) -> Result<Settings, ConfigErrors> {
    let settings = parse(path, std::env::vars())?;
    let broken = rules::broken(&settings, &path.display().to_string());
    if broken.is_empty() { Ok(settings) } else { Err(ConfigErrors(broken)) }
}

/// Reads without applying the rules; for `settled check`, which tells about each by itself.
///
/// # Errors
/// The first thing that cannot be read.
pub fn parse(path: &Path, environment: impl Iterator<Item = (String, String)>) -> Result<Settings, ConfigErrors> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| one(&file, "(file)", format!("must be readable: {e}")))?;
    parse_text(&file, &text, environment)
}

/// The same from text.
///
/// # Errors
/// The first thing that cannot be read.
pub fn parse_text(
    file: &str,
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Settings, ConfigErrors> {
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| one(file, "(syntax)", e.to_string().trim_end().replace('\n', " ")))?;
    let mut whole = toml::Value::Table(table);
    let mut overrides: Vec<(String, String)> = environment.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    overrides.sort();
    for (name, value) in &overrides {
        lay_over(&mut whole, name, value)?;
    }
    serde_path_to_error::deserialize::<_, Settings>(whole).map_err(|e| {
        let key = e.path().to_string();
        one(file, if key == "." { "(top level)" } else { &key }, explain(&e.into_inner().to_string()))
    })
}

fn one(file: &str, key: &str, rule: String) -> ConfigErrors {
    ConfigErrors(vec![ConfigError { file: file.to_owned(), key: key.to_owned(), rule }])
}

/// A rule where the parser only names a missing field.
fn explain(message: &str) -> String {
    let message = message.lines().next().unwrap_or(message).trim();
    if message.contains("missing field `lag`") {
        return "lag has no default: state how long after our last byte a thing may still be invisible \
                (accept queue, proxies, relay queues, index)"
            .to_owned();
    }
    message.to_owned()
}

/// `SETTLED__RETENTION__KEYS_DAYS=90`. A value that reads as TOML (number, boolean, array, quoted text) is taken as that,
/// everything else as text. Elements of arrays are named by index: `SETTLED__DESTINATIONS__0__WEBHOOK__URL`.
fn lay_over(whole: &mut toml::Value, name: &str, value: &str) -> Result<(), ConfigErrors> {
    let path: Vec<String> = name[PREFIX.len()..].split("__").map(str::to_ascii_lowercase).collect();
    let wrong = |rule: &str| one(name, &path.join("."), rule.to_owned());
    let mut at = whole;
    for (depth, segment) in path.iter().enumerate() {
        if segment.is_empty() {
            return Err(wrong("must be SETTLED__SECTION__KEY"));
        }
        let last = depth + 1 == path.len();
        at = match at {
            toml::Value::Table(table) => table.entry(segment.clone()).or_insert_with(|| {
                if last { toml::Value::Boolean(false) } else { toml::Value::Table(toml::Table::new()) }
            }),
            toml::Value::Array(items) => segment
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get_mut(index))
                .ok_or_else(|| wrong("names an array: give the index of an element that is in the file"))?,
            toml::Value::String(_)
            | toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_) => return Err(wrong("names a part of something that has no parts")),
        };
    }
    *at = read_value(value);
    Ok(())
}

fn read_value(text: &str) -> toml::Value {
    #[derive(Deserialize)]
    struct Holder {
        value: toml::Value,
    }
    match toml::from_str::<Holder>(&format!("value = {text}")) {
        // A bare date is not a setting of ours; keep what was written.
        Ok(Holder { value: toml::Value::Datetime(_) }) | Err(_) => toml::Value::String(text.to_owned()),
        Ok(Holder { value }) => value,
    }
}
