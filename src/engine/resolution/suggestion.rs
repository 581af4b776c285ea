//! What a person would do next, with the rule behind it; and from when asking can prove what. It decides nothing.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{
    config::destination::{AbsentByLag, Destination, Visibility},
    domain::{intent::InDoubt, reason::Reason, state::State},
};

/// A suggested act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Suggestion {
    /// The verb to begin with.
    pub act: &'static str,
    /// What to do.
    pub words: &'static str,
    /// Why.
    pub rule: &'static str,
    /// Other verbs that fit.
    #[schema(value_type = Vec<String>)]
    pub also: &'static [&'static str],
}

const fn suggestion(
    act: &'static str,
    words: &'static str,
    rule: &'static str,
    also: &'static [&'static str],
) -> Suggestion {
    Suggestion { act, words, rule, also }
}

const SETTLE: &[&str] = &["sent", "absent", "close", "ask"];

const APPROVAL: Suggestion = suggestion(
    "approve",
    "approve it if this is wanted exactly once more than what was sent before; otherwise reject it",
    "nothing is sent before a person approves; a rejection frees the reference",
    &["reject"],
);
const NO_LOOK_UP: Suggestion = suggestion(
    "sent",
    "look downstream yourself for the key or the reference; say what you saw: sent, or absent",
    "nobody can ask this downstream for you; nothing is sent again without recorded evidence of absence",
    &["absent", "close"],
);
const INCONCLUSIVE: Suggestion = suggestion(
    "ask",
    "read what asking said and why it proves nothing; ask again if that has passed, else look yourself",
    "an absence without its controls, or by the lag alone, is not believed",
    SETTLE,
);
const POISONED_KEY: Suggestion = suggestion(
    "sent",
    "the downstream repeats a stored failure under our key: look there for the reference yourself",
    "a stored failure says nothing about the effect, and the key must not change while it is in doubt",
    &["absent", "close"],
);
const CONFLICT: Suggestion = suggestion(
    "sent",
    "something is there that no row of ours explains: find out whose it is before you say anything",
    "a hit by reference counts only where this intent alone explains it",
    SETTLE,
);
const REFUSED_REQUEST: Suggestion = suggestion(
    "acknowledge",
    "somebody asked for a known reference with other content; nothing was sent. Tell them, or have them use a new reference",
    "one reference names one effect with one content",
    &["comment"],
);
const UNSENT: Suggestion = suggestion(
    "send_again",
    "repair what the downstream complained about, then send it again; or acknowledge that it stays unsent",
    "no effect exists, so sending again is safe; a refusal gets a new key",
    &["acknowledge"],
);
const DEADLINE_NEAR: Suggestion = suggestion(
    "comment",
    "see why it waits: a pause, a parked destination, an approval",
    "nothing is sent after its deadline",
    &["approve", "cancel", "acknowledge"],
);
const DEADLINE_PASSED: Suggestion = suggestion(
    "send_again",
    "tell whoever asked that it was not sent; send it again with a new deadline if it is still wanted",
    "nothing is sent after its deadline, and that is never silent",
    &["acknowledge"],
);
const DUPLICATE_FOUND: Suggestion = suggestion(
    "acknowledge",
    "the effect exists more than once: undo the surplus at the downstream, then acknowledge",
    "a copy that shows up later is reported, not prevented",
    &["comment"],
);
const LATE_RESULT: Suggestion = suggestion(
    "acknowledge",
    "it was sent after all: tell those who had been told otherwise, then acknowledge",
    "evidence of an effect wins over every statement",
    &["comment"],
);
const NOT_AS_MEANT: Suggestion = suggestion(
    "acknowledge",
    "it was accepted but did not arrive as meant: reach the recipient another way, then acknowledge",
    "accepted is sent; a wanted repeat is a new occurrence",
    &["comment"],
);
const PARKED: Suggestion = suggestion(
    "unpark",
    "repair the credentials or the destination, test it, then un-park it",
    "nothing is sent to a destination that refuses us, and nothing is lost while it is parked",
    &["comment"],
);
const LOST_HISTORY: Suggestion = suggestion(
    "acknowledge",
    "the ledger lacks what the downstream shows: follow the runbook of this reason",
    "evidence without a row means lost history or another sender with our secret",
    &["comment"],
);

/// What fits a reason and a state.
pub fn suggest(reason: Reason, state: Option<State>) -> Suggestion {
    match (reason, state) {
        (Reason::ApprovalRequired | Reason::RepeatFlagged, _) => APPROVAL,
        (Reason::NoLookUp, _) => NO_LOOK_UP,
        (Reason::Inconclusive, _) => INCONCLUSIVE,
        (Reason::PoisonedKey, _) => POISONED_KEY,
        (Reason::Conflict, Some(State::Unknown)) => CONFLICT,
        (Reason::Conflict, _) => REFUSED_REQUEST,
        (Reason::AttemptsExhausted | Reason::Refused | Reason::Unsupported, _) => UNSENT,
        (Reason::DeadlineNear, _) => DEADLINE_NEAR,
        (Reason::DeadlinePassed, _) => DEADLINE_PASSED,
        (Reason::DuplicateFound, _) => DUPLICATE_FOUND,
        (Reason::LateResult, _) => LATE_RESULT,
        (Reason::SentNotVisible | Reason::Bounced, _) => NOT_AS_MEANT,
        (Reason::DestinationParked, _) => PARKED,
        (Reason::OrphanSighting | Reason::LedgerRewound, _) => LOST_HISTORY,
    }
}

/// What asking can prove about a doubt, in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Asking {
    /// What holds in doubt.
    pub in_doubt: InDoubt,
    /// It can be asked at all.
    pub possible: bool,
    /// An absence may be believed from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absence_from: Option<DateTime<Utc>>,
    /// Nothing is proven after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// The rule in words.
    pub words: String,
}

/// From when and until when a doubt can be asked about; `closure` is when no byte of the attempt could leave any more.
pub fn asking(destination: &Destination, began: DateTime<Utc>, closure: DateTime<Utc>) -> Asking {
    let in_doubt = destination.doubt_policy();
    let Some(look_up) = &destination.look_up else {
        let words = if destination.replay.is_some() {
            "the same bytes under the same key are answered from the downstream's store while the key lives; it cannot be asked otherwise"
        } else {
            "nobody can ask this downstream"
        };
        return Asking {
            in_doubt,
            possible: destination.replay.is_some(),
            absence_from: None,
            until: None,
            words: words.to_owned(),
        };
    };
    let ordered = match (look_up.visibility, look_up.absent_by_lag) {
        (Visibility::Ordered, _) => "a younger send that is visible proves that ours is not",
        (Visibility::Unordered, AbsentByLag::Person) => "order proves nothing here, so an absence goes to a person",
        (Visibility::Unordered, AbsentByLag::Resend) => "order proves nothing here, but the lag alone is accepted",
    };
    let words = format!(
        "{} equal answers, {} s apart, with a known send found by the same path; {ordered}",
        look_up.need,
        look_up.spacing.as_secs()
    );
    Asking {
        in_doubt,
        possible: true,
        absence_from: Some(crate::engine::folding::after(closure, look_up.lag)),
        until: Some(crate::engine::folding::after(began, look_up.horizon)),
        words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::resolution::VERBS;

    #[test]
    fn every_suggested_verb_exists() {
        for reason in Reason::ALL {
            for state in State::ALL.into_iter().map(Some).chain([None]) {
                let made = suggest(reason, state);
                for verb in made.also.iter().chain([&made.act]) {
                    assert!(VERBS.contains(verb), "{verb} for {reason:?}");
                }
            }
        }
    }
}
