//! What tests stand on.

pub mod db;
pub mod gates;
pub mod imap_script;
pub mod mail;
pub mod mail_servers;
pub mod relay;
