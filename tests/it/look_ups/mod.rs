//! What a look-up says about a downstream.

mod command;
mod conformance;
mod http;
mod http_fakes;
mod http_keyed;
mod http_listing;
mod http_more;
mod http_paging;
mod http_settings;
mod imap;
mod imap_fakes;
mod imap_more;
mod imap_real;
mod providers;
