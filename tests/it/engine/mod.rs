//! What the loops do with an intent.

mod absence;
mod path;
