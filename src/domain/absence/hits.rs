//! Something was seen: whose is it?

use super::{Case, Finding, record, same_key};
use crate::domain::{
    absence::{Ask, Counts, Known},
    evidence::Verdict,
    question::{Hit, Probe, Role, Seen},
};

/// Sorts the subject's hits by who explains them, and concludes.
pub(super) fn explain(case: &Case, probe: &Probe, hits: &[Hit]) -> Finding {
    if hits.is_empty() {
        return Finding::odd("the answer claims hits and shows none");
    }
    let hits = distinct(hits);
    let own: Vec<&Hit> = hits.iter().copied().filter(|hit| carries(hit, &probe.key)).collect();
    if !own.is_empty() {
        return by_key(case, probe, &own, &hits);
    }
    if let Some(near) = hits.iter().find(|hit| !names(hit, probe) && sibling(case, hit).is_none()) {
        let reference = near.reference.as_deref().unwrap_or("none");
        return Finding::odd(format!("an item matches neither key nor reference; its reference is {reference}"));
    }
    if case.rules.shows_key { by_others_keys(case, &hits) } else { by_reference(case, &hits) }
}

/// At least one item carries the subject's key: the effect exists.
fn by_key(case: &Case, probe: &Probe, own: &[&Hit], all: &[&Hit]) -> Finding {
    // The same effect under another identity is a second effect, whatever its key.
    let twins = all.iter().filter(|hit| sibling(case, hit).is_some_and(|known| known.same_effect));
    let effects: Vec<&Hit> = own.iter().chain(twins).copied().collect();
    match effects[..] {
        [hit] if hit.other_recipient => Finding::conflict("an item carries our key but names another recipient"),
        [hit] if hit.contradicts.is_some() => Finding::conflict(format!(
            "an item carries our key but contradicts what was sent, at {}",
            hit.contradicts.as_deref().unwrap_or_default()
        )),
        [hit] if hit.reference.is_some() && !names(hit, probe) => {
            Finding::conflict("an item carries our key but another reference")
        }
        [hit] => settled(Verdict::Found { provider_id: hit.id.clone(), weak: false }),
        _ => settled(Verdict::Duplicate { provider_ids: ids(&effects) }),
    }
}

/// The downstream shows keys, and none is ours.
fn by_others_keys(case: &Case, hits: &[&Hit]) -> Finding {
    for hit in hits {
        match sibling(case, hit) {
            None if hit.key.is_none() => {
                return Finding::unclear("an item carries the reference but no key, so nobody can say whose it is");
            }
            None => return Finding::conflict("an item carries the reference under a key that no intent of ours has"),
            Some(known) if known.same_effect => {
                let name = record::name(known);
                return Finding::conflict(format!("the same effect was already made under another request: {name}"));
            }
            Some(_) => {}
        }
    }
    let names: Vec<String> = hits.iter().filter_map(|hit| sibling(case, hit)).map(record::name).collect();
    Finding::unclear(format!("only other effects under the same reference were seen: {}", names.join(", ")))
}

/// The downstream keeps only the reference: a hit counts where one intent alone could explain it.
fn by_reference(case: &Case, hits: &[&Hit]) -> Finding {
    let unselective = |(_, seen): (&Probe, &Seen)| !matches!(seen, Seen::Nothing);
    if case.asked(Role::Impossible).any(unselective) {
        return Finding::odd("the made-up name was found as well, so a hit on the reference says nothing");
    }
    if hits.iter().any(|hit| hit.key.is_some()) {
        return Finding::odd("an item shows a key although this look-up is declared to show none");
    }
    let could: Vec<&Known> = case.known.iter().filter(|known| known.attempted).collect();
    let elsewhere = hits.iter().filter(|hit| hit.other_recipient).count();
    match could[..] {
        [] => Finding::conflict("an item carries the reference, but no intent of ours with it was ever attempted"),
        [only] if only.is_subject && elsewhere > 0 => {
            Finding::conflict("an item carries the reference but names another recipient, and no other intent has it")
        }
        [only] if only.is_subject && hits.iter().any(|hit| hit.contradicts.is_some()) => {
            Finding::conflict("an item carries the reference but contradicts what was sent")
        }
        [only] if only.is_subject => match hits {
            [hit] => settled(Verdict::Found { provider_id: hit.id.clone(), weak: true }),
            _ if u32::try_from(hits.len()).is_ok_and(|seen| seen <= only.sent_attempts) => {
                settled(Verdict::Duplicate { provider_ids: ids(hits) })
            }
            _ => Finding::conflict("more items carry the reference than attempts of ours could have made"),
        },
        [other] => Finding::unclear(format!("{} alone could explain the item", record::name(other))),
        _ => Finding::unclear(format!("{} intents of ours could explain an item with this reference", could.len())),
    }
}

fn settled(verdict: Verdict) -> Finding {
    Finding { verdict, counts: Counts::Other, ask: Ask::Never }
}

/// The other intent of ours whose key the item carries.
fn sibling<'a>(case: &'a Case, hit: &Hit) -> Option<&'a Known> {
    let mut others = case.known.iter().filter(|known| !known.is_subject);
    others.find(|known| known.key.as_deref().is_some_and(|key| carries(hit, key)))
}

pub(super) fn carries(hit: &Hit, key: &str) -> bool {
    hit.key.as_deref().is_some_and(|own| same_key(own, key))
}

pub(super) fn names(hit: &Hit, probe: &Probe) -> bool {
    hit.reference.as_deref().is_some_and(|reference| reference.eq_ignore_ascii_case(&probe.reference))
}

/// Pages may overlap: the same name of the downstream is the same item. Without a name every item is its own.
fn distinct(hits: &[Hit]) -> Vec<&Hit> {
    let mut seen = std::collections::HashSet::new();
    hits.iter().filter(|hit| hit.id.as_ref().is_none_or(|id| seen.insert(id))).collect()
}

fn ids(hits: &[&Hit]) -> Vec<String> {
    hits.iter().map(|hit| hit.id.clone().unwrap_or_else(|| "(unnamed)".to_owned())).collect()
}
