//! What the loops do with an intent.

mod absence;
mod doubt;
mod path;
mod proof;
