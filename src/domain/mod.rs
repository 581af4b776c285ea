//! What is true: the words of the ledger and the rules between them.
//!
//! No I/O, no clock, no randomness: time comes in as a value. Everything above may use this module; it uses nothing above.

pub mod absence;
pub mod backoff;
pub mod evidence;
pub mod failure_mode;
pub mod gate;
pub mod intent;
pub mod key;
pub mod mark;
pub mod outcome;
pub mod plain;
pub mod question;
pub mod reason;
pub mod rewind;
pub mod state;
