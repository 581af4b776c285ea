//! The house itself: fakes, layers, examples.

mod fakes;
