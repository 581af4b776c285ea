//! What the house keeps: one direction of imports, its style, and a search for interleavings that would break a promise.

mod layering;
mod search;
mod style;
