//! Configuration: `settled.toml` and `SETTLED__SECTION__KEY`. Plain data; every layer above `domain` may read it.

pub mod destination;
pub mod secret;
