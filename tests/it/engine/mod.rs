//! What the loops do with an intent.

mod absence;
mod audit_plans;
mod audit_poison;
mod audit_policy;
mod audit_replay;
mod audit_settling;
mod audit_shutdown;
mod cases_dup;
mod cases_lease;
mod cases_lost;
mod cases_pg;
mod clock_steps;
mod doubt;
mod failure_modes;
mod generations;
mod lost_replies;
mod path;
mod proof;
mod replay;
mod rewind;
mod rewind_marks;
mod siblings;
mod telling;
mod two_daemons;
mod unserved;
