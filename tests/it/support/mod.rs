//! What tests stand on.

pub mod db;
pub mod fragments;
pub mod scripted;
pub mod world;
