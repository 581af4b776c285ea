//! An exhaustive search over small histories: the real fold, and an environment that loses replies, answers late,
//! lets people err and lets other runs ask again. What must hold: no second effect unless a person's false statement
//! caused it, nothing sent without effect, every request with an effect, an open state or a notice, every move legal.

mod moves;
mod world;

use std::collections::HashMap;

use settled::domain::intent::InDoubt;
use world::{Rules, World};

const ALL: Rules = Rules {
    intents: 2,
    attempts: 2,
    acts: 3,
    answers: 2,
    replay: false,
    in_doubt: InDoubt::Ask,
    approval: false,
    free_on_cancel: false,
    ignore_lag: false,
    excuse_people: true,
};

/// What a search found.
struct Result {
    worlds: usize,
    broken: Option<String>,
    trace: Vec<String>,
}

/// Breadth first, so that a trace is a shortest one.
fn search(rules: &Rules) -> Result {
    const MOST: usize = 3_000_000;
    let mut worlds = vec![(World::new(rules), 0, "one request is accepted".to_owned())];
    let mut known: HashMap<World, usize> = HashMap::from([(World::new(rules), 0)]);
    let mut next = 0;
    while next < worlds.len() {
        if let Some(broken) = worlds[next].0.broken(rules) {
            let mut trace = Vec::new();
            let mut at = next;
            while at != 0 {
                trace.push(worlds[at].2.clone());
                at = worlds[at].1;
            }
            trace.reverse();
            return Result { worlds: worlds.len(), broken: Some(broken), trace };
        }
        for (name, world) in moves::all(&worlds[next].0, rules) {
            if !known.contains_key(&world) {
                known.insert(world.clone(), worlds.len());
                worlds.push((world, next, name));
            }
        }
        assert!(worlds.len() < MOST, "the search has no end");
        next += 1;
    }
    Result { worlds: worlds.len(), broken: None, trace: Vec::new() }
}

fn holds(rules: &Rules, at_least: usize) {
    let result = search(rules);
    assert_eq!(result.broken, None, "after {:#?}", result.trace);
    assert!(result.worlds >= at_least, "only {} worlds were seen", result.worlds);
}

fn breaks(rules: &Rules, how: &str, step: &str) {
    let result = search(rules);
    assert_eq!(result.broken.as_deref(), Some(how), "{} worlds", result.worlds);
    assert!(result.trace.iter().any(|name| name.contains(step)), "{:#?}", result.trace);
}

#[test]
fn two_intents_of_one_effect_never_make_two_where_the_downstream_is_asked() {
    holds(&Rules { acts: 2, answers: 1, ..ALL }, 10_000);
}

#[test]
fn three_runs_that_ask_for_one_effect_never_make_two() {
    holds(&Rules { intents: 3, attempts: 1, acts: 2, answers: 1, ..ALL }, 10_000);
}

#[test]
fn one_intent_stands_many_acts_answers_and_retractions() {
    holds(&Rules { intents: 1, acts: 4, ..ALL }, 10_000);
    holds(&Rules { intents: 1, attempts: 1, acts: 5, answers: 1, approval: true, ..ALL }, 5_000);
}

#[test]
fn a_downstream_that_keeps_keys_makes_one_effect_of_sends_and_replays() {
    holds(&Rules { replay: true, acts: 1, answers: 1, ..ALL }, 10_000);
}

#[test]
fn what_cannot_be_asked_makes_no_second_effect_whoever_decides() {
    holds(&Rules { in_doubt: InDoubt::Person, acts: 2, ..ALL }, 1_000);
    holds(&Rules { in_doubt: InDoubt::AtMostOnce, acts: 2, answers: 1, ..ALL }, 1_000);
}

#[test]
fn a_destination_where_twice_is_harmless_still_loses_nothing() {
    holds(&Rules { in_doubt: InDoubt::Harmless, acts: 2, answers: 1, ..ALL }, 1_000);
}

#[test]
fn freeing_the_effect_on_cancel_makes_a_second_effect_and_the_search_finds_it() {
    breaks(&Rules { free_on_cancel: true, ..ALL }, "a second effect", "a person cancels");
}

#[test]
fn believing_absence_before_the_lag_makes_a_second_effect_and_the_search_finds_it() {
    breaks(&Rules { ignore_lag: true, acts: 0, ..ALL }, "a second effect", "the answer is Fresh");
}

#[test]
fn a_false_statement_of_a_person_is_the_only_excuse_that_is_needed() {
    breaks(&Rules { excuse_people: false, ..ALL }, "a second effect", "a person says that it is absent");
}
