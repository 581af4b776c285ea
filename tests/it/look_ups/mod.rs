//! Asking, at the wire.

mod imap;
mod imap_real;
