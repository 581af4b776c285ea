//! What the loops do with an intent.

mod absence;
mod doubt;
mod generations;
mod path;
mod proof;
mod replay;
mod siblings;
