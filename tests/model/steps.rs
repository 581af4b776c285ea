//! What each step does to the world.

use settled::domain::state::State;

use crate::{
    asking::{judge, question},
    moves::{Commit, Fate, Move, has_key},
    rules::{Environment, Rules},
    world::{End, GONE, Kind, Mark, Row, Said, Send, Token, Told, Try, Word, World, effect_of},
};

/// The world after a step; `None` where the ledger refuses it.
pub fn after(world: &World, step: Move, rules: &Rules, env: &Environment) -> Option<World> {
    let mut next = world.clone();
    let stage = Stage { rules, env };
    match step {
        Move::Request(who) => stage.request(&mut next, who),
        Move::RepeatOf(who) => next.row_mut(who).repeated = true,
        Move::Claim(who, commit) => stage.claim(&mut next, who, Kind::Send, commit),
        Move::Replay(who) => stage.claim(&mut next, who, Kind::Replay, Commit::Done),
        Move::NeverStarted(token) => stage.result(&mut next, token, End::NotSent),
        Move::PassTheGate(at) if env.frozen_at_the_write => {
            next.sends[at].checked = true;
            next.sends.sort_unstable();
        }
        Move::PassTheGate(at) | Move::WriteAfterTheCheck(at) => write(&mut next, at),
        Move::StopBeforeTheLastBytes(at) => {
            let send = next.sends.remove(at);
            stage.result(&mut next, send.token, End::NotSent);
        }
        Move::WorkerDies(at) => {
            next.sends.remove(at);
        }
        Move::Reap(who, number) => {
            next.row_mut(who).attempts[usize::from(number) - 1].end = End::Lost;
            stage.evidence(&mut next, who);
        }
        Move::Deliver(at, fate) => stage.deliver(&mut next, at, fate),
        Move::IndexCatchesUp(at) => next.effects[at].visible = true,
        Move::Sighting(at) => {
            let token = next.effects[at].token;
            next.row_mut(token.who).sightings.push(token.number as i8);
            stage.evidence(&mut next, token.who);
        }
        Move::LeaseAndLagGoBy(token) => next.over.add(token),
        Move::Question(who, number) => {
            let asked = question(&next, who, number, rules);
            next.asked += 1;
            next.questions.push(asked);
        }
        Move::WriteAnswer(at) => stage.write_answer(&mut next, at),
        Move::ProofsGoStale => stale(&mut next),
        Move::FoldAgain(who) => stage.evidence(&mut next, who),
        Move::Person(who, word) => return stage.person(next, who, word),
        Move::Retract(who, at) => {
            next.acts += 1;
            let row = next.row_mut(who);
            row.words.remove(at);
            if let Some(gone) = row.gone.as_mut().filter(|gone| at < gone.stated_from) {
                gone.stated_from -= 1;
            }
            return next.settle(who, rules, env).then_some(next);
        }
        Move::DeadlinePasses => next.deadline_passed = true,
        Move::ChangeProvider => next.generation = 1,
        Move::RotateSecret => next.kid = 1,
        Move::ReplicaStandsHere => {
            next.backup = Some(Box::new(next.rows.clone()));
            next.backup_generation = next.generation;
        }
        Move::LoseSuffix => stage.lose_suffix(&mut next),
        Move::ClockJumps => next.jumped = Some(leased(&next)),
        Move::QueueIsDrainedWhileParked => drain(&mut next),
    }
    Some(next)
}

/// What a step is taken under.
#[derive(Clone, Copy)]
struct Stage<'a> {
    rules: &'a Rules,
    env: &'a Environment,
}

impl Stage<'_> {
    /// Evidence is written whatever the state, so the fold must find a cell for it.
    fn evidence(self, world: &mut World, who: u8) {
        if !world.settle(who, self.rules, self.env) {
            world.unwritten = true;
        }
    }

    fn request(self, world: &mut World, who: u8) {
        let mut row = Row::new(self.env);
        if world.epoch > 0 && self.rules.new_requests_ask_first {
            row.doubt_history(world.generation);
        }
        world.rows[usize::from(who)] = Some(row);
        self.evidence(world, who);
    }

    fn claim(self, world: &mut World, who: u8, kind: Kind, commit: Commit) {
        let (generation, active, epoch) = (world.generation, world.kid, world.epoch);
        let row = world.row_mut(who);
        let kid = if self.rules.key_pinned { row.kid.unwrap_or(active) } else { active };
        let void = commit == Commit::NotDone;
        let token = Token { who, number: row.newest() + 1, epoch, void };
        if !void {
            row.kid = Some(kid);
            let unheard = commit == Commit::DoneUnheard;
            row.attempts.push(Try { kind, end: End::Open, generation, token, unheard });
        }
        if commit != Commit::DoneUnheard {
            world.sends.push(Send { token, generation, kid, checked: false });
            world.sends.sort_unstable();
        }
        self.evidence(world, who);
    }

    /// A result closes its attempt, also one that was reaped; where no row knows the attempt, an effect is evidence of its own.
    fn result(self, world: &mut World, token: Token, end: End) {
        let fenced = self.rules.token_in_fence;
        let Some(row) = world.rows[usize::from(token.who)].as_mut() else { return };
        let at = usize::from(token.number) - 1;
        let taken = at < row.attempts.len();
        match row.attempts.get_mut(at).filter(|a| a.token == token || !fenced) {
            Some(attempt) if matches!(attempt.end, End::Open | End::Lost) || end == End::Sent => attempt.end = end,
            Some(_) => return,
            None if end == End::Sent => {
                let number = token.number as i8 * if taken { -1 } else { 1 };
                if !row.sightings.contains(&number) {
                    row.sightings.push(number);
                }
            }
            None => return,
        }
        self.evidence(world, token.who);
    }

    fn deliver(self, world: &mut World, at: usize, fate: Fate) {
        let mark = world.wire.remove(at);
        let who = mark.token.who;
        let arrives = matches!(fate, Fate::ArrivesReplyLost | Fate::ArrivesReplySent);
        // A downstream that keeps keys makes one effect per key.
        if arrives && !(self.env.keeps_keys && has_key(world, who, mark.kid, mark.generation)) {
            world.effects.push(Mark { visible: !self.env.slow_index, ..mark });
            world.effects.sort_unstable();
        }
        match fate {
            Fate::ArrivesReplyLost | Fate::DiesOnTheWay => {}
            Fate::ArrivesReplySent => self.result(world, mark.token, End::Sent),
            Fate::Refused => self.result(world, mark.token, End::Refused),
            Fate::StoredFailureReplayed => self.result(world, mark.token, End::Poisoned),
        }
    }

    fn write_answer(self, world: &mut World, at: usize) {
        let question = world.questions.remove(at);
        let Some(said) = judge(world, &question, self.rules, self.env) else { return };
        let row = world.row_mut(question.who);
        // A hit may be a later send's, where one had begun when it was asked.
        let number = match said {
            Said::Found | Said::Duplicate => question.newest.max(question.number),
            Said::Fresh | Said::Stale | Said::Conflict => question.number,
        };
        row.told.push(Told { number, newest: question.newest, said, asked_at: question.asked_at });
        self.evidence(world, question.who);
    }

    fn person(self, mut world: World, who: u8, word: Word) -> Option<World> {
        world.acts += 1;
        let there = world.may_exist(effect_of(who));
        let own = world.effects_by(who) > 0;
        let generation = world.generation;
        match word {
            Word::Absent(_) => world.false_absent |= there,
            Word::Sent => world.false_sent[usize::from(who)] |= !own,
            Word::Closed | Word::Cancelled | Word::Approved | Word::Rejected | Word::SendAgain(_) => {}
        }
        let row = world.row_mut(who);
        row.words.push(word);
        if matches!(word, Word::SendAgain(_)) && row.history_lost {
            row.doubt_history(generation);
            row.history_lost = false;
        }
        world.settle(who, self.rules, self.env).then_some(world)
    }

    /// Rows go back to where the replica stood; the world does not.
    fn lose_suffix(self, world: &mut World) {
        let Some(backup) = world.backup.take() else { return };
        world.lost = leased(world);
        world.rows = *backup;
        world.epoch += 1;
        // Whoever asked meanwhile writes its answer all the same; closures are those of the newest rewind by then.
        let rows = &world.rows;
        world.questions.retain(|question| rows[usize::from(question.who)].is_some());
        let generation = world.generation;
        for who in 0..world.rows.len() as u8 {
            let Some(row) = world.rows[usize::from(who)].as_mut() else { continue };
            match row.state {
                State::Held | State::Pending | State::InFlight | State::Unknown | State::Abandoned => {
                    if self.rules.rewound_is_in_doubt {
                        row.attempts.iter_mut().filter(|a| a.end == End::Open).for_each(|a| a.end = End::Lost);
                        row.doubt_history(generation);
                    }
                    self.evidence(world, who);
                }
                State::Failed | State::Cancelled => row.history_lost = self.rules.rewound_end_is_marked,
                State::Sent => {}
            }
        }
        for question in &mut world.questions {
            let row = world.rows[usize::from(question.who)].as_ref().expect("it was kept");
            question.newest = question.newest.min(row.newest());
            question.ripe &= question.number != GONE && question.number <= row.newest();
        }
    }
}

fn write(world: &mut World, at: usize) {
    let send = world.sends.remove(at);
    let (token, generation, kid) = (send.token, send.generation, send.kid);
    world.wire.push(Mark { token, generation, kid, visible: false });
    world.wire.sort_unstable();
}

fn stale(world: &mut World) {
    // Also those that a rewind will bring back: their time has gone by there as well.
    let backup = world.backup.iter_mut().flat_map(|rows| rows.iter_mut());
    for told in world.rows.iter_mut().chain(backup).flatten().flat_map(|row| &mut row.told) {
        if told.said == Said::Fresh {
            told.said = Said::Stale;
        }
    }
    world.questions.iter_mut().for_each(|question| question.fresh = false);
}

/// Claims whose bytes could leave, arrive or become visible now.
fn leased(world: &World) -> crate::world::Tokens {
    let mut tokens = crate::world::Tokens::default();
    let rows = world.all_rows().flat_map(|(_, row)| &row.attempts);
    rows.map(|a| a.token)
        .chain(world.sends.iter().map(|send| send.token))
        .chain(world.wire.iter().chain(&world.effects).map(|mark| mark.token))
        .for_each(|token| tokens.add(token));
    tokens
}

/// What waited longer than the lag arrives, long after the proofs were made.
fn drain(world: &mut World) {
    let (late, rest): (Vec<Mark>, Vec<Mark>) = world.wire.iter().partition(|mark| world.over.has(mark.token));
    world.wire = rest;
    world.effects.extend(late.into_iter().map(|mark| Mark { visible: true, ..mark }));
    world.effects.sort_unstable();
    stale(world);
}
