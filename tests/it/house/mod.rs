//! The house itself: fakes, layers, examples.

mod cluster;
mod fakes;
