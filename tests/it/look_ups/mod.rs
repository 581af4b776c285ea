//! What a look-up says about a downstream.

mod command;
mod http;
mod http_fakes;
mod http_keyed;
mod http_listing;
mod http_settings;
mod imap;
mod imap_fakes;
mod imap_real;
