//! Configuration: `settled.toml` and `SETTLED__SECTION__KEY`. Plain data; every layer above `domain` may read it.
//!
//! [`load()`] reads and merges, [`settings`] says what there is, [`rules`] refuses what cannot work, [`check`] tells a person
//! about all of it. `deploy/settled.example.toml` is the commented reference.

pub mod access;
pub mod canary;
pub mod check;
pub mod compensate;
pub mod destination;
pub mod keys;
pub mod load;
pub mod retention;
pub mod rules;
pub mod secret;
pub mod settings;
pub mod sightings;
pub mod template;

pub use load::{ConfigError, ConfigErrors, load};
pub use settings::Settings;

/// An adapter cannot be built from a destination's settings. Names the setting and the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct BuildError {
    /// Path of the setting inside the destination, such as `look_up.http.url`.
    pub field: String,
    /// What it must be, in words that follow the name of the field.
    pub rule: String,
}

impl BuildError {
    /// An error about one setting.
    pub fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }

    /// A section that cannot be read. Values stay out of the words: a secret may stand where a reference to one belongs.
    pub fn unread(section: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let known = |start: &str| text.starts_with(start);
        let rule = if known("unknown field") || known("missing field") || known("duplicate field") {
            text
        } else if let Some((_, expected)) = text.split_once(", expected ") {
            format!("has a value of the wrong kind; expected {expected}")
        } else {
            "has a value of the wrong kind".to_owned()
        };
        Self::new(section, format!("cannot be read: {rule}"))
    }
}
