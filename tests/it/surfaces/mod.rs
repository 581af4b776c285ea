//! Configuration, HTTP API and command line, as their callers see them.

mod asking;
mod bench;
mod bulk;
mod cases;
mod cli;
mod config;
mod doctor;
mod http;
mod http_support;
pub(crate) mod openapi;
mod pooler;
mod read_only;
mod reading;
mod schemathesis;
mod starting;
mod tokens;
mod unserved;
mod verify;
