//! Channels over a fake downstream: what was seen there, and what the channel says about it.

pub mod cases_ssrf;
pub mod fake;
mod wire_exchange;
