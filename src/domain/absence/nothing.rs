//! Nothing was seen: is it proof?
//!
//! Not-found now means never-arrived only under five premises: no byte is under way (closure), what was accepted is
//! visible (lag, younger witness), what was visible has not gone (horizon, elder witness), the same place was asked
//! (account, generation, any witness), and our marks can be matched (a witness found by its own).

use super::{
    Ask, Case, Counts, Finding,
    hits::{carries, names},
    plus, proof_life, same_key,
};
use crate::domain::{
    evidence::Verdict,
    question::{AccountSeen, Probe, Role, Seen},
};

/// What the witnesses of one answer carry.
struct Controls {
    /// At least one known item was seen.
    any: bool,
    /// Elder and younger were both seen.
    bracket: bool,
}

pub(super) fn weigh(case: &Case, subject: &Probe) -> Finding {
    // Controls come first: an answer whose controls fail ends the row of equal answers at any time.
    let controls = match controls(case, subject) {
        Ok(controls) => controls,
        Err(why) => return Finding::odd(why),
    };
    if let Err(why) = place(case) {
        return Finding::odd(why);
    }
    if case.now >= case.horizon_at() {
        return Finding {
            ask: Ask::Never,
            ..Finding::unclear("it is too long ago: the downstream may have forgotten it")
        };
    }
    let asked_at = case.question.now;
    if asked_at < case.doubtful.closure_at {
        return too_early(case, "bytes of the attempt could still leave when it was asked");
    }
    if asked_at < case.ripe_at() {
        return too_early(case, "the lag has not gone by since the last byte could leave");
    }
    if let Some(why) = &case.suspended {
        return Finding::odd(format!("absence is not believed just now: {why}"));
    }
    if !controls.any {
        return Finding::unclear(
            "no known item was looked for by the same path, so not seeing this one proves nothing",
        );
    }
    count(case, &controls)
}

/// All premises hold but, perhaps, the number of equal answers.
fn count(case: &Case, controls: &Controls) -> Finding {
    let asked_at = case.question.now;
    let clean = |verdict, ask| Finding { verdict, counts: Counts::Nothing, ask };
    let (have, need) = (equal_answers(case), case.rules.need.max(1));
    let inconclusive = |why| Verdict::Inconclusive { why };
    if have < need {
        let why = format!("not seen; equal answer {have} of {need}");
        return clean(inconclusive(why), Ask::At(plus(asked_at, case.rules.spacing).max(case.now)));
    }
    let valid_until = plus(asked_at, proof_life(case.rules.lag));
    if valid_until <= case.now {
        return clean(
            inconclusive("not seen, but the answer took longer than its proof would hold".to_owned()),
            Ask::Later,
        );
    }
    let resend = case.rules.resend_by_lag;
    if case.rules.ordered && controls.bracket {
        clean(Verdict::Absent { valid_until }, Ask::Never)
    } else {
        clean(Verdict::AbsentByLag { valid_until, resend }, if resend { Ask::Never } else { Ask::Later })
    }
}

fn too_early(case: &Case, why: &str) -> Finding {
    Finding { ask: Ask::At(case.ripe_at()), ..Finding::unclear(why) }
}

/// The same account answered as the one that the attempt was sent to.
fn place(case: &Case) -> Result<(), String> {
    match (&case.answer.account, &case.doubtful.account) {
        (AccountSeen::NotChecked, _) => Err("nobody checked which account answered".to_owned()),
        (AccountSeen::Differs { seen }, _) => Err(format!("the downstream answered as another account: {seen}")),
        (AccountSeen::Matches { identity }, Some(sent)) if identity != sent => {
            Err(format!("it was sent as {sent}, and {identity} answered"))
        }
        (AccountSeen::Matches { .. }, _) => Ok(()),
    }
}

/// Every witness that was asked for is there, and the made-up name is not.
fn controls(case: &Case, subject: &Probe) -> Result<Controls, String> {
    let mut made_up = 0;
    for (_, seen) in case.asked(Role::Impossible) {
        match seen {
            Seen::Nothing => made_up += 1,
            Seen::Hits { .. } => return Err("a made-up name was found: the answer is not selective".to_owned()),
            Seen::CannotTell { why } => return Err(format!("the made-up name could not be asked for: {why}")),
        }
    }
    if made_up == 0 {
        return Err("no made-up name was asked for".to_owned());
    }
    let elders = witnesses(case, subject, Role::Elder)?;
    let youngers = witnesses(case, subject, Role::Younger)?;
    let elder = elders.iter().find(|probe| probe.sent_until <= case.doubtful.started_at);
    let younger = youngers.iter().find(|probe| probe.sent_from > case.doubtful.closure_at);
    // Where a listing brings its own witnesses, one listing must have brought them all.
    let together = case.answer.same_answer || !case.rules.lists;
    Ok(Controls {
        any: !elders.is_empty() || !youngers.is_empty(),
        bracket: together
            && matches!((elder, younger), (Some(elder), Some(younger)) if !same_key(&elder.key, &younger.key)),
    })
}

/// The witnesses of one role, all of them seen; or what is wrong with one.
fn witnesses<'a>(case: &'a Case, subject: &Probe, role: Role) -> Result<Vec<&'a Probe>, String> {
    let word = if role == Role::Elder { "an elder" } else { "a younger" };
    let mut found = Vec::new();
    for (probe, seen) in case.asked(role) {
        if same_key(&probe.key, &subject.key) {
            return Err(format!("{word} witness is the subject itself"));
        }
        let hits = match seen {
            Seen::Hits { hits } => hits,
            Seen::Nothing => return Err(format!("{word} witness that is known as sent was not seen")),
            Seen::CannotTell { why } => return Err(format!("{word} witness could not be asked for: {why}")),
        };
        // Its own key where keys are shown; else its own reference, which must not be the subject's.
        let own = hits.iter().any(|hit| {
            let marked =
                if case.rules.shows_key { carries(hit, &probe.key) } else { names(hit, probe) && !names(hit, subject) };
            marked && !hit.other_recipient && hit.contradicts.is_none()
        });
        if !own {
            return Err(format!("{word} witness was not seen by its own marks"));
        }
        found.push(probe);
    }
    Ok(found)
}

/// Equal answers in a row that end with this one: clean, after the lag, at least the spacing apart.
pub(super) fn equal_answers(case: &Case) -> u32 {
    let mut have = 1;
    let mut next = case.question.now;
    for earlier in case.earlier.iter().rev() {
        if earlier.error || !earlier.nothing || earlier.at < case.ripe_at() {
            break;
        }
        if plus(earlier.at, case.rules.spacing) <= next {
            have += 1;
            next = earlier.at;
        }
    }
    have
}
