//! What tests stand on.

pub mod db;
pub mod scripted;
