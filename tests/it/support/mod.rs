//! What tests stand on.

pub mod db;
pub mod ledger;
pub mod scripted;
