//! What tests stand on.

pub mod db;
pub mod fragments;
pub mod world;
pub mod scripted;
