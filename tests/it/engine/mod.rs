//! What the loops do with an intent.

mod absence;
mod cases_dup;
mod cases_lease;
mod cases_lost;
mod doubt;
mod generations;
mod path;
mod proof;
mod replay;
mod siblings;
mod telling;
mod two_daemons;
mod unserved;
