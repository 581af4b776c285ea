//! What tests stand on.

pub mod db;
pub mod doubling;
pub mod fragments;
pub mod gates;
pub mod imap_script;
pub mod ledger;
pub mod mail;
pub mod mail_servers;
pub mod pgbouncer;
pub mod process;
pub mod relay;
pub mod rewinding;
pub mod scripted;
pub mod world;
