//! What moves an intent. One file moves one kind of transition:
//!
//! | file | moves |
//! |---|---|
//! | `admission` | nothing → held, pending |
//! | `dispatcher` | pending → in_flight; pending → unknown where a proof went stale |
//! | `single` | pending → in_flight, one by name, for `verify` |
//! | `results` | in_flight → sent, failed, pending, unknown, … by the fold |
//! | `reaper` | in_flight → unknown, abandoned |
//! | `reconciler` | unknown → sent, pending, failed, …; replays |
//! | `auditor` | sent, failed → sent, with what asking without a doubt showed |
//! | `sweeper` | held, pending → cancelled (deadline) |
//! | `decider` | failed, … → pending (*send again*, when it binds) |
//! | `quarantine` | held, pending, in_flight → unknown, after the database lost history |
//! | `resolution` | what people stated |
//! | `sightings` | any → sent, by what the downstream reports |
//!
//! All of them go through [`folding`]: lock the row, read all evidence, fold, write.

pub mod admission;
pub mod auditor;
mod claiming;
pub mod decider;
pub mod dispatcher;
pub mod fleet;
pub mod folding;
mod orphans;
mod placement;
pub mod quarantine;
pub mod rate;
pub mod reaper;
mod recognised;
pub mod reconciler;
pub mod resolution;
pub mod results;
pub mod runner;
pub mod self_stop;
pub mod sightings;
pub mod single;
pub mod start_checks;
pub mod sweeper;
pub mod watch;
