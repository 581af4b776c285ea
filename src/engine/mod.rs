//! (being written)

pub mod admission;
