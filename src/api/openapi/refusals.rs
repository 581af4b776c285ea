//! Which problems each group of operations may answer.

use std::collections::BTreeMap;

use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use super::problems::answer;
use crate::api::problem::Kind::{self, *};

type Responses = BTreeMap<String, RefOr<Response>>;

/// Answers by status.
fn of(groups: &[&[Kind]]) -> Responses {
    let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in groups.iter().copied().flatten() {
        by_status.entry(kind.status().as_u16()).or_default().push(*kind);
    }
    by_status.into_iter().map(|(status, kinds)| (status.to_string(), RefOr::T(answer(&kinds)))).collect()
}

/// Whoever calls with a token, and whatever is asked of the ledger.
const ALWAYS: &[Kind] = &[Unauthenticated, Forbidden, Unavailable, Internal];
/// A body is read.
const BODY: &[Kind] = &[Malformed, Invalid, TooLarge, UnsupportedMediaType, TooSlow];
/// A person's act.
const ACT: &[Kind] = &[NotFound, Stale, NotPossible, Incomplete, RivalOpen];
/// A call is judged by the ledger.
const ENQUEUE: &[Kind] = &[NotFound, RivalOpen];

macro_rules! refusals {
    ($($(#[$words:meta])* $name:ident = [$($group:expr),* $(,)?];)*) => {
        $(
            $(#[$words])*
            pub(in crate::api) struct $name;

            impl IntoResponses for $name {
                fn responses() -> Responses {
                    of(&[$($group),*])
                }
            }
        )*
    };
}

refusals! {
    /// Lists.
    Reading = [ALWAYS, &[Invalid]];
    /// One thing by its id.
    ReadingOne = [ALWAYS, &[Invalid, NotFound]];
    /// The numbers.
    Counting = [ALWAYS];
    /// One wish.
    Enqueueing = [ALWAYS, BODY, ENQUEUE, &[IdentityRequired, Conflict, KeyReused, EndedWithoutEffect, Expired]];
    /// Many wishes: what is said of one of them is in its item.
    EnqueueingMany = [ALWAYS, BODY, ENQUEUE, &[BatchRefused]];
    /// Withdrawing, by producers and people.
    Cancelling = [ALWAYS, BODY, ACT, &[TooLate]];
    /// Acts.
    Acting = [ALWAYS, BODY, ACT];
    /// Pausing and resuming.
    Pausing = [ALWAYS, BODY, &[NotFound]];
    /// Reports of downstreams.
    Reporting = [ALWAYS, BODY, &[NotFound, RivalOpen]];
}
