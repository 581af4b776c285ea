//! The self-stop: a channel asks before it writes, and once more before the last bytes leave.
//!
//! It is not a fence that the downstream enforces; a process frozen between the check and the write can still act.

use std::{future::Future, pin::Pin, time::Duration};

/// A boxed future, for traits that are used as objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Says whether an attempt may still write. Implemented by the engine, used by every channel.
pub trait Gate: Send + Sync {
    /// False from the moment the attempt's time is over (boot-time and wall clock, the stricter). Cheap; asked at every write.
    fn is_open(&self) -> bool;

    /// How long it stays open; zero once closed.
    fn remaining(&self) -> Duration;

    /// Told by the stream how many bytes it has just handed on: what is known of a send that had to be given up.
    fn wrote(&self, _bytes: usize) {}

    /// Asked with the last bytes still held back, and again where the connection died before a byte had left: clocks again
    /// and, where needed, the row in Postgres.
    /// On `false` the channel closes with a reset and reports that the request stayed incomplete.
    fn last_bytes(&self) -> BoxFuture<'_, bool>;
}
