//! Configuration: `settled.toml` and `SETTLED__SECTION__KEY`. Plain data; every layer above `domain` may read it.
//!
//! [`load`] reads and merges, [`settings`] says what there is, [`rules`] refuses what cannot work, [`check`] tells a person
//! about all of it. `deploy/settled.example.toml` is the commented reference.

pub mod check;
pub mod destination;
pub mod keys;
pub mod load;
pub mod retention;
pub mod rules;
pub mod secret;
pub mod settings;

pub use load::{ConfigError, ConfigErrors, load};
pub use settings::Settings;
