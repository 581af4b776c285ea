//! (being written)
pub mod metrics;
