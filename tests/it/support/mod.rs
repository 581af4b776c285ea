//! What tests stand on.

pub mod db;
