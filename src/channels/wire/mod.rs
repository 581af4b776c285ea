//! The one stream type every channel talks over: bytes are counted, writes stop when the gate closes, and the address
//! that is dialled has passed the egress guard.

pub mod counted;
pub mod dial;
pub mod guard;
pub mod http1;

use std::time::Duration;

use crate::domain::gate::{BoxFuture, Gate};

/// The gate of a question: asking has no effect downstream, so nothing needs to be held back. Never for a send.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysOpen;

impl Gate for AlwaysOpen {
    fn is_open(&self) -> bool {
        true
    }

    fn remaining(&self) -> Duration {
        Duration::MAX
    }

    fn last_bytes(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}
