//! What tests stand on.

pub mod db;
pub mod gates;

pub mod mail;

pub mod relay;
