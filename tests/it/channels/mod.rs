//! Sending, at the wire.

mod smtp;
mod smtp_cases;
mod smtp_render;
mod smtp_tls;
