//! Daemon processes that are killed, frozen, stopped and cut off from Postgres, against fakes that count what happened.
//!
//! Beside `it`, since everything here is about processes: the daemon under test is the built program, its downstreams live in
//! the test. What must hold at the end of each: lost 0, doubled 0, counted at the downstreams.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on must stop loudly, and the account is printed"
)]

#[path = "../it/support/db.rs"]
mod db;

mod account;
mod count;
mod cut;
mod decided;
mod frozen;
mod house;
mod kills;
mod listed;
mod points;
#[expect(dead_code, reason = "shared with the suite in width")]
mod process;
#[expect(dead_code, reason = "shared with the suite in width")]
mod proxy;
mod starting;
mod stopping;
mod wire;
