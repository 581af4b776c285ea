//! Sending. One file each; an adapter never sees the database and never decides what a doubt leads to.

pub mod classify;
pub mod registry;
pub mod sms;
pub mod smtp;
pub mod webhook;
pub mod wire;

use std::sync::Arc;

use crate::domain::{
    gate::{BoxFuture, Gate},
    intent::Outgoing,
    outcome::Ended,
};

/// A rendered message, ready to be handed over. Rendering is deterministic for an intent; only timestamps and signatures
/// are added at the send.
pub struct Prepared {
    /// SHA-256 of what an equal attempt would carry; a replay with another digest is no replay.
    pub digest: [u8; 32],
    /// What the channel needs to put it on the wire.
    pub wire: Wire,
}

/// The wire form of a message.
pub enum Wire {
    /// One HTTP request.
    Http(wire::http1::Request),
    /// One mail to one envelope recipient.
    Mail(smtp::Mail),
}

/// The payload cannot be sent through this channel; nothing left the process and nothing will.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Unsupported {
    /// JSON pointer or setting.
    pub field: String,
    /// What it must be.
    pub rule: String,
}

/// A way to send.
pub trait Channel: Send + Sync {
    /// Renders the message. Refuses what only the daemon can see.
    ///
    /// # Errors
    /// [`Unsupported`] names the field and the rule.
    fn prepare(&self, outgoing: &Outgoing) -> Result<Prepared, Unsupported>;

    /// The downstream may act on a request that stayed incomplete, so that half of one proves nothing.
    fn acts_on_halves(&self) -> bool {
        false
    }

    /// Hands it over once. No retry, no redirect, no pool replay. Obeys the gate at every write and before the last bytes.
    fn send<'a>(&'a self, prepared: Prepared, outgoing: &'a Outgoing, gate: Arc<dyn Gate>) -> BoxFuture<'a, Ended>;
}
