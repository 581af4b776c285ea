//! Everything that can happen next: workers, the network, the downstream, the reconciler, people, other runs, and what befalls
//! the database.

use settled::domain::{intent::InDoubt, state::State};

use crate::{
    asking::{judge, question},
    rules::{Environment, Rules},
    world::{End, IDENTITIES, OTHER, Row, Said, Token, Word, World, effect_of},
};

/// What became of a claim's COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Commit {
    Done,
    /// Done, but the reply was lost: the claimer does not send, and says so later.
    DoneUnheard,
    /// Not done, and the reply was lost.
    NotDone,
}

/// What becomes of bytes under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    ArrivesReplyLost,
    ArrivesReplySent,
    DiesOnTheWay,
    Refused,
    StoredFailureReplayed,
}

/// One step. Numbers are identities and positions in the world's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    Request(u8),
    RepeatOf(u8),
    Claim(u8, Commit),
    Replay(u8),
    NeverStarted(Token),
    PassTheGate(usize),
    WriteAfterTheCheck(usize),
    StopBeforeTheLastBytes(usize),
    WorkerDies(usize),
    Reap(u8, u8),
    Deliver(usize, Fate),
    IndexCatchesUp(usize),
    Sighting(usize),
    LeaseAndLagGoBy(Token),
    Question(u8, u8),
    WriteAnswer(usize),
    ProofsGoStale,
    FoldAgain(u8),
    Person(u8, Word),
    Retract(u8, usize),
    DeadlinePasses,
    ChangeProvider,
    RotateSecret,
    ReplicaStandsHere,
    LoseSuffix,
    ClockJumps,
    QueueIsDrainedWhileParked,
}

/// All steps that can follow, in a fixed order.
pub fn all(world: &World, rules: &Rules, env: &Environment, moves: &mut Vec<Move>) {
    for who in 0..IDENTITIES as u8 {
        requests(world, env, who, moves);
        if let Some(row) = world.row(who) {
            claims(world, row, who, rules, env, moves);
            questions(world, row, who, rules, env, moves);
            if world.acts < env.acts {
                people(world, row, who, moves);
            }
        }
    }
    workers(world, rules, env, moves);
    network(world, env, moves);
    time(world, rules, env, moves);
    befalls(world, env, moves);
}

fn requests(world: &World, env: &Environment, who: u8, moves: &mut Vec<Move>) {
    let asks = if who == OTHER { env.other_effect } else { usize::from(who) < env.requests };
    // The first run asks first, or the same histories would be searched under two names.
    let early = (1..OTHER).contains(&who) && world.row(who - 1).is_none() && world.epoch == 0;
    if !asks || world.row(who).is_some() || early {
        return;
    }
    match world.holder(effect_of(who)) {
        None => moves.push(Move::Request(who)),
        Some(holder) => {
            let row = world.row(holder).expect("it holds");
            if !row.repeated && !row.state.is_settled() {
                moves.push(Move::RepeatOf(holder));
            }
        }
    }
}

/// The model makes no more attempts than this, also of those that spend none.
pub fn has_room(row: &Row, who: u8, env: &Environment) -> bool {
    // The other effect is there to be mistaken for this one; it needs no doubts of its own.
    let most = if who == OTHER { 1 } else { env.attempts };
    row.attempts.len() < most
}

fn claims(world: &World, row: &Row, who: u8, rules: &Rules, env: &Environment, moves: &mut Vec<Move>) {
    let folded = row.fold(rules, env, world.deadline_passed);
    if row.state != folded.state {
        moves.push(Move::FoldAgain(who));
    }
    for (number, attempt) in (1u8..).zip(&row.attempts) {
        if attempt.end == End::Open {
            moves.push(Move::Reap(who, number));
        }
        if attempt.unheard && matches!(attempt.end, End::Open | End::Lost) {
            moves.push(Move::NeverStarted(attempt.token));
        }
    }
    let parked = env.parks && world.wire.iter().any(|mark| world.over.has(mark.token));
    if !has_room(row, who, env) || !row.holds || parked || world.quarantined(rules) {
        return;
    }
    if row.state == State::Pending && folded.state == State::Pending {
        moves.push(Move::Claim(who, Commit::Done));
        if env.lost_claims {
            moves.push(Move::Claim(who, Commit::DoneUnheard));
            if !rules.committed_claims_only && world.sends.is_empty() {
                moves.push(Move::Claim(who, Commit::NotDone));
            }
        }
    }
    let poisoned = row.attempts.iter().any(|a| a.end == End::Poisoned);
    let same_place =
        row.attempts.iter().any(|a| a.end == End::Lost && (a.generation == world.generation || !rules.own_generation));
    if env.keeps_keys && row.state == State::Unknown && same_place && !poisoned && !world.deadline_passed {
        moves.push(Move::Replay(who));
    }
}

fn workers(world: &World, rules: &Rules, env: &Environment, moves: &mut Vec<Move>) {
    for (at, send) in world.sends.iter().enumerate() {
        if send.checked {
            moves.push(Move::WriteAfterTheCheck(at));
            continue;
        }
        if !world.over.has(send.token) || !rules.self_stop {
            moves.push(Move::PassTheGate(at));
        }
        moves.push(Move::StopBeforeTheLastBytes(at));
        if env.deaths {
            moves.push(Move::WorkerDies(at));
        }
    }
}

fn network(world: &World, env: &Environment, moves: &mut Vec<Move>) {
    for (at, mark) in world.wire.iter().enumerate() {
        if world.over.has(mark.token) && env.parks {
            continue;
        }
        let known = has_key(world, mark.token.who, mark.kid, mark.generation);
        let effect = effect_of(mark.token.who);
        let there = |e: &crate::world::Mark| effect_of(e.token.who) == effect && e.generation == mark.generation;
        let fates = [Fate::ArrivesReplyLost, Fate::ArrivesReplySent, Fate::DiesOnTheWay];
        moves.extend(fates.map(|fate| Move::Deliver(at, fate)));
        if env.refuses_duplicates || !world.effects.iter().any(there) {
            moves.push(Move::Deliver(at, Fate::Refused));
        }
        if env.keeps_keys && env.stores_failures && known {
            moves.push(Move::Deliver(at, Fate::StoredFailureReplayed));
        }
    }
    for (at, effect) in world.effects.iter().enumerate() {
        if !effect.visible {
            moves.push(Move::IndexCatchesUp(at));
        }
        let unseen = world.row(effect.token.who).is_some_and(|row| row.sightings.is_empty());
        if env.sightings && unseen {
            moves.push(Move::Sighting(at));
        }
    }
}

/// The downstream has this very key already.
pub fn has_key(world: &World, who: u8, kid: u8, generation: u8) -> bool {
    world.effects.iter().any(|e| (e.token.who, e.kid, e.generation) == (who, kid, generation))
}

fn time(world: &World, rules: &Rules, env: &Environment, moves: &mut Vec<Move>) {
    let in_doubt = |end: End| matches!(end, End::Open | End::Lost | End::Poisoned);
    let mut tokens: Vec<Token> = world
        .all_rows()
        .flat_map(|(_, row)| &row.attempts)
        .filter(|a| in_doubt(a.end))
        .map(|a| a.token)
        .chain(world.sends.iter().map(|send| send.token))
        .chain(world.wire.iter().map(|mark| mark.token))
        .chain(world.lost.list())
        .chain(world.jumped.into_iter().flat_map(|jumped| jumped.list()))
        .collect();
    tokens.sort_unstable();
    tokens.dedup();
    for token in tokens {
        // The declared lag holds: it covers what is under way, and the index.
        let under_way = world.wire.iter().any(|mark| mark.token == token) && !(env.parks || env.lag_is_wrong);
        let unseen = world.effects.iter().any(|e| e.token == token && !e.visible);
        let at_the_write = world.sends.iter().any(|s| s.token == token && s.checked) && !env.frozen_at_the_write;
        if !world.over.has(token) && !under_way && !unseen && !at_the_write {
            moves.push(Move::LeaseAndLagGoBy(token));
        }
    }
    let fresh = |row: &Row| row.told.iter().any(|told| told.said == Said::Fresh);
    if rules.proofs_expire && (world.all_rows().any(|(_, row)| fresh(row)) || world.questions.iter().any(|q| q.fresh)) {
        moves.push(Move::ProofsGoStale);
    }
    if env.deadline && !world.deadline_passed {
        moves.push(Move::DeadlinePasses);
    }
}

fn questions(world: &World, row: &Row, who: u8, rules: &Rules, env: &Environment, moves: &mut Vec<Move>) {
    let asked_about = matches!(row.state, State::Unknown | State::Abandoned)
        && !matches!(env.in_doubt, InDoubt::Person | InDoubt::Compensate);
    if who == OTHER || !asked_about || world.asked >= env.questions || world.questions.len() >= env.reconcilers {
        return;
    }
    for number in row.doubts() {
        let question = question(world, who, number, rules);
        let Some(said) = judge(world, &question, rules, env) else { continue };
        let last = row.told.iter().rfind(|told| told.number == number);
        if last.is_none_or(|last| (last.said, last.newest) != (said, question.newest)) {
            moves.push(Move::Question(who, number));
        }
    }
}

fn people(world: &World, row: &Row, who: u8, moves: &mut Vec<Move>) {
    if row.is_open() {
        return;
    }
    let newest = row.newest();
    let words: &[Word] = match row.state {
        State::Unknown | State::Abandoned => &[Word::Sent, Word::Absent(newest), Word::Closed, Word::Cancelled],
        State::Pending => &[Word::Cancelled],
        State::Held => &[Word::Approved, Word::Rejected, Word::Cancelled],
        State::Failed | State::Cancelled if !world.deadline_passed => &[Word::SendAgain(newest), Word::Sent],
        State::Failed | State::Cancelled | State::Sent | State::InFlight => &[],
    };
    moves.extend(words.iter().map(|word| Move::Person(who, *word)));
    for (at, word) in row.words.iter().enumerate() {
        if !matches!(word, Word::SendAgain(_)) {
            moves.push(Move::Retract(who, at));
        }
    }
}

fn befalls(world: &World, env: &Environment, moves: &mut Vec<Move>) {
    for answer in 0..world.questions.len() {
        moves.push(Move::WriteAnswer(answer));
    }
    let begun = world.rows.iter().any(Option::is_some);
    if env.provider_changes && world.generation == 0 && begun {
        moves.push(Move::ChangeProvider);
    }
    if env.secret_rotates && world.kid == 0 && begun {
        moves.push(Move::RotateSecret);
    }
    if world.epoch < env.rewinds {
        match world.backup {
            None => moves.push(Move::ReplicaStandsHere),
            Some(_) => moves.push(Move::LoseSuffix),
        }
    }
    let leased = !world.sends.is_empty() || !world.wire.is_empty();
    if env.clock_jumps && world.jumped.is_none() && leased {
        moves.push(Move::ClockJumps);
    }
    if env.parks && world.wire.iter().any(|mark| world.over.has(mark.token)) {
        moves.push(Move::QueueIsDrainedWhileParked);
    }
}
