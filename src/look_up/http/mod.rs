//! Declarative questions over HTTP: where to ask, how to read the answer, how to know that it was all.
//!
//! Built from `[destinations.look_up.http]`; called by the reconciler and by `destinations test` through [`LookUp`]. What must
//! hold: nothing is changed downstream (GET, HEAD, and POST for APIs whose query is a body); every hit is compared again
//! here; a list is read to its end or is no answer; everything odd (redirect, HTML, other status, cut or unreadable body,
//! missing items, endless pages) is `CannotTell` with its reason. No verdict is reached here.
//!
//! ```toml
//! [destinations.look_up.http]
//! per = "window"                       # one listing for all; "key" asks once for each intent and control
//! url = "https://api.example/messages"
//! query = { since = "{from:%Y-%m-%dT%H:%M:%SZ}", limit = "100" }
//! auth = { bearer = { file = "/run/secrets/example-token" } }
//! [destinations.look_up.http.answer]
//! assert = { "/status" = "ok" }
//! items = "/messages"
//! key_at = "/metadata/key"
//! reference_at = "/metadata/reference"
//! id_at = "/id"
//! [destinations.look_up.http.pages]
//! next_at = "/links/next"
//! full_page = 100
//! [destinations.look_up.http.account]
//! url = "https://api.example/account"
//! expect = { "/id" = 12345 }
//! ```
//!
//! `per = "key"` asks in the order: account, elder witnesses, the subject, younger witnesses, the impossible name; where no
//! younger witness exists, the first elder is asked once more after the subject, and an elder that was visible before and is
//! not any more says that the path broke in between.

mod account;
mod ask;
mod checks;
pub(in crate::look_up) mod items;
mod marked;
mod oauth;
mod paging;
mod plan;
mod reading;
mod request;
mod settings;

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{
    channels::wire::http1::Options,
    config::{BuildError, destination::Destination},
    domain::{
        gate::BoxFuture,
        question::{Abilities, Answer, Marked, Question},
    },
    look_up::LookUp,
};
use plan::Plan;

/// A declarative look-up.
pub struct Http {
    plan: Plan,
    options: Options,
    /// Longest Retry-After that is passed on.
    longest_wait: Duration,
}

impl Http {
    /// Builds it, reading its secrets.
    ///
    /// # Errors
    /// [`BuildError`] names the setting and the rule.
    pub fn build(destination: &Destination) -> Result<Self, BuildError> {
        let section = destination
            .look_up
            .as_ref()
            .and_then(|look_up| look_up.http.as_ref())
            .ok_or_else(|| BuildError::new("look_up.http", "must be there for kind = \"http\""))?;
        let plan = Plan::build(section)?;
        let mut options =
            Options::of(destination).map_err(|error| BuildError::new("ca_file", format!("cannot be used: {error}")))?;
        options.answer_bytes = plan.page_bytes;
        // A page is the answer here, not diagnostics; `within` bounds it.
        options.timeouts.answer = plan.within;
        Ok(Self { plan, options, longest_wait: destination.limits.backoff_max })
    }
}

impl LookUp for Http {
    fn abilities(&self) -> Abilities {
        let by_key = self.plan.per == settings::Per::Key && self.plan.asks.key;
        Abilities {
            shows_key: self.plan.answer.key_at.is_some() || by_key,
            lists: self.plan.per == settings::Per::Window,
        }
    }

    fn marked(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> BoxFuture<'_, Option<Marked>> {
        Box::pin(self.marked_in(from, until))
    }

    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(self.answer(question))
    }

    fn ask_many<'a>(&'a self, questions: &'a [Question]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(self.answer_many(questions))
    }
}
