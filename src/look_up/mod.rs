//! Asking. One file each; an adapter reads and matches, it never concludes.

pub mod command;
pub mod http;
pub mod imap;
pub mod registry;
mod several;
pub mod template;
pub mod window;

use chrono::{DateTime, Utc};

use crate::domain::{
    gate::BoxFuture,
    question::{Abilities, Answer, Marked, Question},
};

/// A way to ask a downstream what it has.
pub trait LookUp: Send + Sync {
    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Asks for all probes of the question. Never fails: what went wrong is `CannotTell`.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer>;

    /// What the downstream lists of a window and carries a key of ours, whoever asked for it. `None` where it does not list or
    /// shows no keys. What cannot be read is left out: this is for finding more, never for believing that something is not there.
    fn marked(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> BoxFuture<'_, Option<Marked>> {
        let _window = (from, until);
        Box::pin(async { None })
    }

    /// Asks several questions of the same destination and gives an answer for each, in their order. What lists
    /// ([`Abilities::lists`]) reads once, from the eldest to the youngest window, and judges all of them from that one
    /// listing, so whoever calls puts questions together whose windows lie close; the others are asked one by one.
    fn ask_many<'a>(&'a self, questions: &'a [Question]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(questions.len());
            for question in questions {
                answers.push(self.ask(question).await);
            }
            answers
        })
    }
}
