//! Channels over a fake downstream: what was seen there, and what the channel says about it.

mod cases_http;
mod cases_poison;
mod cases_rate;
mod cases_reading;
mod cases_sightings;
mod cases_signature;
mod cases_ssrf;
pub mod conformance;
pub mod fake;
mod sms;
mod smtp;
mod smtp_cases;
mod smtp_kept;
mod smtp_render;
mod smtp_tls;
mod tls;
mod webhook;
mod wire_exchange;
