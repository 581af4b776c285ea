//! The guided demonstration and what it stands on: fake downstreams and a private Postgres.
//!
//! Called by `settled demo`, by the integration tests and by the crash suite. Nothing in here uses settled's own channels or
//! look-ups: what judges the daemon must not share its mistakes.

pub mod cluster;
pub mod fakes;
