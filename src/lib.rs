//! `settled`: a transactional outbox and reconciler for side effects that must not happen twice.
//!
//! The path of one intent: a surface parses a call and hands it to [`engine`]`::admission`; the ledger decides in one SQL
//! function; the dispatcher claims it under a lease, a channel sends it, the outcome is folded into its state. A doubt is
//! never retried: the reconciler asks the downstream, and what cannot be proven waits for a person.

pub mod api;
#[cfg(feature = "demo")]
pub mod bench;
pub mod channels;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
#[cfg(feature = "demo")]
pub mod demo;
pub mod doctor;
pub mod domain;
pub mod engine;
pub mod failpoint;
pub mod lifecycle;
pub mod look_up;
pub mod store;
pub mod telemetry;
pub mod verify;
