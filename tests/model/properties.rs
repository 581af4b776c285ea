//! What must hold in every world.

use settled::domain::{intent::InDoubt, state::State};

use crate::{
    Protocol,
    world::{World, effect_of},
};

/// At most one effect, but for what a person's false statement caused, and where twice is declared harmless.
pub fn no_second_effect(protocol: &Protocol, world: &World) -> bool {
    let excused = protocol.env.people_err && world.false_absent || protocol.env.in_doubt == InDoubt::Harmless;
    excused || (0..2).all(|e| world.effects.iter().filter(|mark| effect_of(mark.token.who) == e).count() <= 1)
}

/// *Sent* means that it happened, or that a person said so.
pub fn sent_means_that_it_happened(_: &Protocol, world: &World) -> bool {
    world
        .all_rows()
        .all(|(who, row)| row.state != State::Sent || world.effects_by(who) > 0 || world.false_sent[usize::from(who)])
}

/// *Failed* and *cancelled* mean that it did not happen, or that nobody knows any more.
pub fn an_end_without_effect_is_true_or_marked(protocol: &Protocol, world: &World) -> bool {
    // Where the lag did not hold, only the effect stays kept.
    let excused = world.false_absent || protocol.env.parks;
    world.all_rows().all(|(who, row)| {
        let ended = matches!(row.state, State::Failed | State::Cancelled);
        !ended || world.effects_by(who) == 0 || row.history_lost || excused
    })
}

/// Every request has an effect, an open state, or a notice.
pub fn nobody_is_left_without_an_answer(protocol: &Protocol, world: &World) -> bool {
    world.all_rows().all(|(who, row)| {
        let told = row.notice && (!row.repeated || protocol.rules.all_requests_told);
        let said = world.false_sent[usize::from(who)];
        world.effects_by(who) > 0 || !row.state.is_settled() || told || said
    })
}

/// The order in which evidence was written changes nothing.
pub fn the_order_of_evidence_does_not_matter(protocol: &Protocol, world: &World) -> bool {
    world.all_rows().all(|(_, row)| {
        (row.told.len() < 2 && row.sightings.len() < 2)
            || row.fold(&protocol.rules, &protocol.env, world.deadline_passed)
                == row.fold_otherwise(&protocol.rules, &protocol.env, world.deadline_passed)
    })
}

/// Every move is legal, all evidence can be written, and no effect has two holders.
pub fn the_ledger_takes_everything(_: &Protocol, world: &World) -> bool {
    let holders = |e: u8| world.all_rows().filter(|(who, row)| effect_of(*who) == e && row.holds).count();
    world.illegal.is_none() && !world.unwritten && holders(0) <= 1 && holders(1) <= 1
}

/// What is open can go on: somebody will claim it, reap it, ask about it, or decide.
pub fn what_is_open_can_go_on(protocol: &Protocol, world: &World) -> bool {
    world.all_rows().all(|(_, row)| {
        let holds = row.holds || !protocol.rules.doubt_keeps_effect;
        match row.state {
            State::Held | State::Pending => holds,
            State::InFlight => holds && row.is_open(),
            State::Unknown => holds && row.doubts().next().is_some(),
            State::Abandoned => holds,
            State::Sent | State::Failed | State::Cancelled => true,
        }
    })
}

/// Where nothing more can happen, everything has ended or waits for a person.
pub fn in_the_end_it_is_settled_or_with_a_person(protocol: &Protocol, world: &World) -> bool {
    let mut moves = Vec::new();
    crate::moves::all(world, &protocol.rules, &protocol.env, &mut moves);
    !moves.is_empty()
        || world.all_rows().all(|(who, row)| match row.state {
            // An unknown that no answer settles spends its budget of questions; then an escalation is open.
            State::Sent | State::Failed | State::Cancelled | State::Abandoned | State::Held | State::Unknown => true,
            // Attempts that began no conversation spend nothing; the model stops at a number of them.
            State::Pending => !crate::moves::has_room(row, who, &protocol.env),
            State::InFlight => false,
        })
}
