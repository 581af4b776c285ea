//! One integration binary: behaviour at the boundary, a folder by subject.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop loudly"
)]

mod channels;
mod engine;
mod fuzz;
mod house;
mod ledger;
mod look_ups;
mod people;
mod support;
mod surfaces;
