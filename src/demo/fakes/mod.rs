//! Fake downstreams with switchable faults: a webhook receiver, an SMS provider, a mail server with its mailbox.
//!
//! Each keeps an own ledger of the effects that happened ([`ledger_of_effects`]), whatever its replies said. That ledger is
//! the truth against which the demonstration and the crash suite count what was lost and what was doubled.

pub mod desk;
pub mod door;
pub mod faults;
pub mod http;
pub mod imap;
pub mod keys;
pub mod latch;
pub mod ledger_of_effects;
pub mod mailbox;
pub mod signature;
pub mod sms;
pub mod smtp;
pub mod tls;
pub mod webhook;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};

/// Locks although another thread panicked while holding the lock; the fakes hold plain data only.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The downstream's own clock. A downstream does not know the daemon's, so the fakes do not share it either.
pub(crate) fn now() -> DateTime<Utc> {
    Utc::now()
}
