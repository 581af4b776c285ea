//! Asking. One file each; an adapter reads and matches, it never concludes.

pub mod http;
pub mod imap;
pub mod registry;
pub mod template;

use crate::domain::{
    gate::BoxFuture,
    question::{Abilities, Answer, Question},
};

/// A way to ask a downstream what it has.
pub trait LookUp: Send + Sync {
    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Asks for all probes of the question. Never fails: what went wrong is `CannotTell`.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer>;
}
