//! Everything that can happen next: the network, the daemon, the reconciler, people, other runs.

use settled::domain::{intent::InDoubt, state::State};

use super::world::{AttemptWord, End, Mark, Rules, Said, Word, World};

/// A step with its name, for the trace.
pub(super) type Step = (String, World);

/// All worlds that can follow.
pub(super) fn all(world: &World, rules: &Rules) -> Vec<Step> {
    let mut steps = Vec::new();
    for intent in 0..world.rows.len() {
        daemon(world, rules, intent, &mut steps);
        network(world, rules, intent, &mut steps);
        ask(world, rules, intent, &mut steps);
        if world.acts < rules.acts {
            people(world, rules, intent, &mut steps);
        }
    }
    elsewhere(world, rules, &mut steps);
    steps
}

/// Evidence: it is written whatever the state, so the fold must find a cell for it.
fn step(
    steps: &mut Vec<Step>,
    world: &World,
    rules: &Rules,
    intent: usize,
    name: &str,
    change: impl FnOnce(&mut World),
) {
    let mut next = world.clone();
    change(&mut next);
    next.lost_evidence = !next.settle(intent, rules);
    steps.push((format!("I{intent}: {name}"), next));
}

/// An act of a person; the ledger refuses it where it needs an effect that another intent has taken.
fn act(
    steps: &mut Vec<Step>,
    world: &World,
    rules: &Rules,
    intent: usize,
    name: &str,
    change: impl FnOnce(&mut World),
) {
    let mut next = world.clone();
    next.acts += 1;
    change(&mut next);
    if next.settle(intent, rules) {
        steps.push((format!("I{intent}: {name}"), next));
    }
}

fn daemon(world: &World, rules: &Rules, intent: usize, steps: &mut Vec<Step>) {
    let row = &world.rows[intent];
    let number = row.newest() + 1;
    let room = row.attempts.len() < rules.attempts;
    let folded = row.fold(rules, world.deadline_passed);
    if row.state == State::Pending && room && folded.state == State::Pending && row.holds {
        step(steps, world, rules, intent, &format!("claim, bytes of attempt {number} leave"), |w| {
            w.rows[intent].attempts.push((AttemptWord::Send, End::Open));
            w.wire.push((intent, number));
        });
    }
    if row.state != folded.state {
        step(steps, world, rules, intent, "time has passed: folded again", |_| {});
    }
    if rules.replay && row.state == State::Unknown && room && row.holds {
        step(steps, world, rules, intent, &format!("replay as attempt {number}"), |w| {
            w.rows[intent].attempts.push((AttemptWord::Replay, End::Open));
            w.wire.push((intent, number));
        });
    }
    for (at, (_, end)) in row.attempts.iter().enumerate() {
        if *end == End::Open {
            step(steps, world, rules, intent, &format!("attempt {}: no reply, or the lease ended", at + 1), |w| {
                w.rows[intent].attempts[at].1 = End::Lost;
            });
        }
    }
}

fn network(world: &World, rules: &Rules, intent: usize, steps: &mut Vec<Step>) {
    let row = &world.rows[intent];
    for mark in world.wire.iter().filter(|(of, _)| *of == intent) {
        let number = mark.1;
        let at = usize::from(number) - 1;
        let mut ends = |end: Option<End>, effect: bool, name: &str| {
            step(steps, world, rules, intent, &format!("attempt {number}: {name}"), |w| {
                w.wire.retain(|other| other != mark);
                // A downstream that keeps keys makes one effect per key.
                if effect && !(rules.replay && w.effects_of(intent).next().is_some()) {
                    w.effects.push(*mark);
                    w.effects.sort_unstable();
                }
                if let Some(end) = end {
                    result(w, *mark, end);
                }
            });
        };
        ends(None, true, "arrives, the reply is lost");
        ends(Some(End::Sent), true, "arrives, the reply says sent");
        ends(None, false, "dies on the way");
        ends(Some(End::Refused), false, "is refused, perhaps as a duplicate");
        if row.attempts[at].1 == End::Open {
            ends(Some(End::NotSent), false, "connection refused, or never started");
        }
    }
    for mark in world.effects_of(intent) {
        if !row.sightings.contains(&mark.1) && row.sightings.is_empty() {
            step(steps, world, rules, intent, &format!("a sighting of attempt {}", mark.1), |w| {
                w.rows[intent].sightings.push(mark.1);
            });
        }
    }
}

/// A result closes its attempt; one that comes after the reaper is evidence of its own, where it says that it happened.
fn result(world: &mut World, (intent, number): Mark, end: End) {
    let row = &mut world.rows[intent];
    let attempt = &mut row.attempts[usize::from(number) - 1];
    if attempt.1 == End::Open {
        attempt.1 = end;
    } else if end == End::Sent && !row.sightings.contains(&number) {
        row.sightings.push(number);
        row.sightings.sort_unstable();
    }
}

fn ask(world: &World, rules: &Rules, intent: usize, steps: &mut Vec<Step>) {
    let row = &world.rows[intent];
    if world.answer.is_some() || world.answers >= rules.answers {
        return;
    }
    if !matches!(row.state, State::Unknown | State::Abandoned) || rules.in_doubt == InDoubt::Person {
        return;
    }
    let own = world.effects_of(intent).count();
    let elsewhere = world.effects.len() - own;
    for (number, (_, end)) in (1u8..).zip(&row.attempts) {
        if *end != End::Lost {
            continue;
        }
        // The declared lag holds: nothing of the attempt is under way once absence may be concluded.
        let under_way = !rules.ignore_lag && world.on_wire(intent);
        let said = match (own, elsewhere) {
            (1, 0) => Said::Found,
            (0, 0) if under_way => continue,
            (0, 0) => Said::Fresh,
            (0, _) => Said::Conflict,
            _ => Said::Duplicate,
        };
        let newest = row.attempts.len() as u8;
        if row.asked.last() != Some(&(number, said, newest)) {
            let mut next = world.clone();
            next.answer = Some(((intent, number), said, newest));
            next.answers += 1;
            steps.push((format!("I{intent}: attempt {number} is asked about, the answer is {said:?}"), next));
        }
    }
}

fn people(world: &World, rules: &Rules, intent: usize, steps: &mut Vec<Step>) {
    let row = &world.rows[intent];
    if row.is_open() {
        return;
    }
    let newest = row.newest();
    let mut say = |word: Word, name: &str| {
        act(steps, world, rules, intent, name, |w| {
            w.rows[intent].words.push(word);
            let there = w.effects_of(intent).next().is_some();
            match word {
                Word::Absent(_) => w.false_absent |= there || w.on_wire(intent),
                Word::Sent if !there => w.false_sent.push(intent),
                Word::Sent | Word::Closed | Word::Cancelled | Word::Approved | Word::Rejected | Word::SendAgain(_) => {}
            }
        });
    };
    match row.state {
        State::Unknown | State::Abandoned => {
            say(Word::Sent, "a person says that it was sent");
            say(Word::Absent(newest), "a person says that it is absent");
            say(Word::Closed, "a person closes without knowing");
            say(Word::Cancelled, "a person cancels");
        }
        State::Pending => say(Word::Cancelled, "a person cancels"),
        State::Held => {
            say(Word::Approved, "a person approves");
            say(Word::Rejected, "a person rejects");
            say(Word::Cancelled, "a person cancels");
        }
        State::Failed | State::Cancelled if !world.deadline_passed => {
            say(Word::SendAgain(newest), "a person sends again");
            say(Word::Sent, "a person says that it was sent");
        }
        State::Failed | State::Cancelled | State::Sent | State::InFlight => {}
    }
    for (at, word) in row.words.iter().enumerate() {
        if !matches!(word, Word::SendAgain(_)) {
            act(steps, world, rules, intent, &format!("{word:?} is retracted"), |w| {
                w.rows[intent].words.remove(at);
            });
        }
    }
}

fn elsewhere(world: &World, rules: &Rules, steps: &mut Vec<Step>) {
    if world.rows.len() < rules.intents && world.holder().is_none() {
        let mut next = world.clone();
        next.accept(rules);
        steps.push((format!("another run asks for the effect: accepted as I{}", world.rows.len()), next));
    }
    if let Some((mark, said, newest)) = world.answer {
        step(steps, world, rules, mark.0, &format!("the answer about attempt {} is written", mark.1), |w| {
            w.answer = None;
            w.rows[mark.0].asked.push((mark.1, said, newest));
        });
    }
    let mut late = world.clone();
    for said in late.rows.iter_mut().flat_map(|row| &mut row.asked).map(|(_, said, _)| said) {
        if *said == Said::Fresh {
            *said = Said::Stale;
        }
    }
    if let Some((_, said @ Said::Fresh, _)) = &mut late.answer {
        *said = Said::Stale;
    }
    if late != *world {
        steps.push(("proofs go stale".to_owned(), late));
    }
    if !world.deadline_passed {
        let mut next = world.clone();
        next.deadline_passed = true;
        steps.push(("the deadline passes".to_owned(), next));
    }
}
