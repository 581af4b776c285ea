//! The protocol as a model: every history of a small world, searched with `stateright`. States come from the real fold, verdicts
//! from the real judge of absence, keys from the real derivation; the environment loses replies, freezes, rewinds and errs.
//! `holding` shows what must hold; `without` takes one rule out at a time and expects the fault that it was made against.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on must stop loudly"
)]
#![expect(clippy::print_stdout, reason = "what was searched is worth reading")]

mod asking;
mod holding;
mod moves;
mod properties;
mod rules;
mod steps;
mod without;
mod world;

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::{
    moves::Move,
    rules::{Environment, HOUSE, Rules},
    world::World,
};

/// The model: rules and environment.
#[derive(Debug, Clone)]
pub struct Protocol {
    pub rules: Rules,
    pub env: Environment,
}

pub const SECOND_EFFECT: &str = "no second effect that nobody accepted";
pub const SENT: &str = "sent means that it happened";
pub const ENDED: &str = "an end without effect is true or marked";
pub const ANSWERED: &str = "every request has an effect, an open state or a notice";
pub const ORDER: &str = "the order of evidence does not matter";

impl Model for Protocol {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![World::new()]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        moves::all(world, &self.rules, &self.env, moves);
    }

    fn next_state(&self, world: &World, step: Move) -> Option<World> {
        steps::after(world, step, &self.rules, &self.env)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(SECOND_EFFECT, properties::no_second_effect),
            Property::always(SENT, properties::sent_means_that_it_happened),
            Property::always(ENDED, properties::an_end_without_effect_is_true_or_marked),
            Property::always(ANSWERED, properties::nobody_is_left_without_an_answer),
            Property::always(ORDER, properties::the_order_of_evidence_does_not_matter),
            Property::always("the ledger takes everything", properties::the_ledger_takes_everything),
            Property::always("what is open can go on", properties::what_is_open_can_go_on),
        ];
        if self.env.deaths {
            let ends = properties::in_the_end_it_is_settled_or_with_a_person;
            properties.push(Property::always("it ends or waits for a person", ends));
        }
        properties
    }
}

/// All histories; nothing may be broken in any of them. `at_least` worlds, or the search was of nothing.
pub fn holds(name: &str, env: Environment, at_least: usize) {
    let began = Instant::now();
    let checked = Protocol { rules: HOUSE, env }.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (worlds, depth) = (checked.unique_state_count(), checked.max_depth());
    println!("{name}: {worlds} worlds, {} steps, {depth} deep, {:.1?}", checked.state_count(), began.elapsed());
    if let Some((broken, path)) = checked.discoveries().into_iter().next() {
        panic!("{name}: not so: {broken}, after {}", told(path.into_actions()));
    }
    assert!(worlds >= at_least, "{name}: only {worlds} worlds were seen");
}

/// Without a rule the fault is found; with it, in the same environment, it is not.
pub fn breaks(name: &str, without: impl FnOnce(&mut Rules), env: Environment, property: &'static str) {
    // Several rules are taken out in one environment; with all rules it is searched once.
    static SEARCHED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let of = format!("{env:?}");
    let first = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(of);
    if first {
        holds(&format!("with {name}"), env, 50);
    }
    finds(&format!("without {name}"), without, env, property);
}

/// The fault is found, and the steps to it are printed.
pub fn finds(name: &str, change: impl FnOnce(&mut Rules), env: Environment, property: &'static str) {
    let mut rules = HOUSE;
    change(&mut rules);
    let began = Instant::now();
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checked = Protocol { rules, env }.checker().finish_when(wanted).spawn_bfs().join();
    let worlds = checked.unique_state_count();
    let Some(path) = checked.discovery(property) else { panic!("{name} nothing breaks in {worlds} worlds") };
    let steps = path.into_actions();
    let spent = began.elapsed();
    println!("{name}: not so: {property}; {} steps, {worlds} worlds, {spent:.1?}{}", steps.len(), told(steps));
}

fn told(steps: Vec<Move>) -> String {
    (1..).zip(steps).map(|(n, step)| format!("\n  {n:2} {step:?}")).collect()
}
