//! What holds under the rules of the house, one corner of the environment at a time.

use settled::domain::intent::InDoubt;

use crate::{
    holds,
    rules::{Environment, ORDINARY},
};

#[test]
fn two_runs_that_ask_for_one_effect_never_make_two() {
    holds("two runs, people", Environment { requests: 2, questions: 1, ..ORDINARY }, 70_000);
    holds("three runs, people", Environment { requests: 3, attempts: 1, questions: 1, ..ORDINARY }, 20_000);
}

#[test]
fn one_intent_stands_many_acts_answers_and_retractions() {
    let one = Environment { deadline: true, sightings: true, ..ORDINARY };
    holds("acts", Environment { acts: 3, attempts: 1, questions: 1, ..one }, 5_000);
    holds("acts with approval", Environment { acts: 3, attempts: 1, questions: 1, approval: true, ..one }, 2_000);
    holds("three attempts", Environment { acts: 0, attempts: 3, questions: 2, sightings: false, ..one }, 9_000);
}

#[test]
fn a_downstream_that_keeps_keys_makes_one_effect_of_sends_and_replays() {
    let keeps = Environment { keeps_keys: true, stores_failures: true, acts: 0, questions: 1, ..ORDINARY };
    holds("replays, stored failures, another secret", Environment { secret_rotates: true, ..keeps }, 4_000);
    holds("replays, another provider", Environment { provider_changes: true, ..keeps }, 4_000);
}

#[test]
fn another_effect_under_the_same_reference_answers_for_nobody() {
    let two = Environment { other_effect: true, acts: 0, ..ORDINARY };
    holds("the reference twice, keys shown", two, 10_000);
    holds("the reference twice, no keys shown", Environment { shows_keys: false, ..two }, 10_000);
}

#[test]
fn a_provider_that_is_changed_in_doubt_is_not_believed() {
    holds("another provider", Environment { provider_changes: true, ..ORDINARY }, 10_000);
}

#[test]
fn lagging_indexes_and_two_reconcilers_with_stale_verdicts_prove_nothing_false() {
    holds("a slow index, two reconcilers", Environment { slow_index: true, reconcilers: 2, ..ORDINARY }, 7_000);
}

#[test]
fn a_clock_that_jumps_proves_nothing() {
    holds("a clock that jumps", Environment { clock_jumps: true, ..ORDINARY }, 10_000);
}

#[test]
fn a_lost_reply_to_a_claim_sends_nothing_twice() {
    holds("lost replies to claims", Environment { lost_claims: true, ..ORDINARY }, 8_000);
}

#[test]
fn a_destination_parked_between_proof_and_claim_is_asked_once_more() {
    holds("parked", Environment { parks: true, ..ORDINARY }, 4_000);
}

#[test]
fn everything_ends_or_waits_for_a_person() {
    let dies = Environment { deaths: true, deadline: true, ..ORDINARY };
    holds("to the end", dies, 7_000);
    holds("to the end, keys kept", Environment { keeps_keys: true, stores_failures: true, acts: 0, ..dies }, 6_000);
    holds("to the end, rewound", Environment { rewinds: 1, attempts: 1, acts: 0, ..dies }, 2_500);
}

#[test]
fn a_rewound_ledger_makes_no_second_effect() {
    let rewinds = Environment { rewinds: 1, attempts: 1, acts: 0, questions: 1, ..ORDINARY };
    holds("rewound", rewinds, 400);
    holds("rewound, two runs", Environment { requests: 2, ..rewinds }, 3_000);
    holds("rewound, two attempts, older proofs", Environment { attempts: 2, questions: 2, ..rewinds }, 10_000);
    holds("rewound twice, older proofs", Environment { rewinds: 2, questions: 2, ..rewinds }, 8_000);
    holds("rewound, another provider", Environment { provider_changes: true, ..rewinds }, 1_000);
    holds("rewound, another secret", Environment { secret_rotates: true, ..rewinds }, 1_000);
    holds(
        "rewound, keys kept",
        Environment { keeps_keys: true, stores_failures: true, attempts: 2, ..rewinds },
        20_000,
    );
    holds("rewound, people", Environment { acts: 1, ..rewinds }, 2_000);
    holds("rewound, approval", Environment { acts: 1, approval: true, ..rewinds }, 500);
}

#[test]
fn what_cannot_be_asked_makes_no_second_effect_whoever_decides() {
    let two = Environment { requests: 2, attempts: 1, acts: 2, ..ORDINARY };
    holds("people decide", Environment { in_doubt: InDoubt::Person, ..two }, 6_000);
    holds("at most once", Environment { in_doubt: InDoubt::AtMostOnce, acts: 1, questions: 1, ..two }, 3_000);
    holds("counter-action", Environment { in_doubt: InDoubt::Compensate, acts: 1, ..two }, 1_000);
}

#[test]
fn a_destination_where_twice_is_harmless_still_loses_nothing() {
    holds("harmless", Environment { in_doubt: InDoubt::Harmless, deadline: true, questions: 1, ..ORDINARY }, 7_000);
}
