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
mod doubt;
mod failure_modes;
mod generations;
mod path;
mod proof;
mod replay;
mod siblings;
mod telling;
mod two_daemons;
mod unserved;
