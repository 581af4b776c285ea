//! Finding a probe among items: exact, by us, whatever the downstream's filter claims to have done.
//!
//! Pure. Called by `ask` with what `reading` collected. A near miss (INV-2291 where INV-229 was asked for) is no hit; what
//! cannot be told apart is said, not guessed.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{
    checks::{self, Passed},
    plan::{Named, Plan},
    reading::{Found, Reading},
    settings::Match,
};
use crate::{
    domain::{
        mark::{self, Carried},
        plain,
        question::{Hit, Probe, Seen},
    },
    look_up::{imap::item::Item, template::Values},
};

/// Longest text of an item that is kept as evidence, characters.
const KEPT: usize = 200;

/// What one reading says about one probe.
pub(super) fn seen(plan: &Plan, reading: &Reading, probe: &Probe) -> Seen {
    let named = plan.named;
    if probe.key.is_empty() && probe.reference.is_empty() {
        return cannot_tell("neither key nor reference is known");
    }
    let mut hits = Vec::new();
    let mut unclear = false;
    for item in &reading.items {
        match checked(plan, item, probe) {
            Matched::Hit(hit) => hits.push(*hit),
            Matched::Unclear => unclear = true,
            Matched::No => {}
        }
    }
    // "Several" is said by the status; where the body lists them they are already here.
    if reading.found == Found::Many {
        while hits.len() < 2 {
            hits.push(bare(named, probe));
        }
    }
    if !hits.is_empty() {
        // A find stays a find, however the reading ended.
        return Seen::Hits { hits };
    }
    if let Some(flaw) = &reading.flaw {
        return cannot_tell(flaw);
    }
    if unclear {
        return cannot_tell("the name stands inside a longer one and cannot be told from it");
    }
    if named.any() && !reading.items.is_empty() {
        return cannot_tell("something answers at the address of the intent, but it does not carry its name");
    }
    Seen::Nothing
}

fn cannot_tell(why: &str) -> Seen {
    Seen::CannotTell { why: why.to_owned() }
}

enum Matched {
    Hit(Box<Hit>),
    Unclear,
    No,
}

fn bare(named: Named, probe: &Probe) -> Hit {
    Hit {
        id: None,
        key: named.key.then(|| probe.key.clone()),
        reference: named.reference.then(|| probe.reference.clone()),
        attempt: None,
        at: None,
        status: None,
        other_recipient: false,
        contradicts: None,
    }
}

/// An item by its names, and by what else it must say.
fn checked(plan: &Plan, item: &Value, probe: &Probe) -> Matched {
    let matched = if plan.answer.matching == Match::Header { mail(plan, item, probe) } else { hit(plan, item, probe) };
    let mut hit = match matched {
        Matched::Hit(hit) => hit,
        Matched::Unclear => return Matched::Unclear,
        Matched::No => return Matched::No,
    };
    let values = Values { probe: Some(probe), from: probe.sent_from, until: probe.sent_until };
    match checks::passed(&plan.checks, item, &values) {
        Passed::Yes => {}
        Passed::Skip => return Matched::No,
        Passed::Unclear => return Matched::Unclear,
        Passed::Conflict(at) => hit.contradicts = Some(at),
    }
    Matched::Hit(hit)
}

/// An item that holds a mail: the marks are in its header.
fn mail(plan: &Plan, item: &Value, probe: &Probe) -> Matched {
    let answer = &plan.answer;
    let Some(text) = answer.key_at.as_ref().and_then(|at| texts(item, at).into_iter().next()) else {
        return Matched::No;
    };
    let Ok(header) = Item::read(0, DateTime::UNIX_EPOCH, text.as_bytes()) else { return Matched::Unclear };
    let Some(hit) = header.hit(String::new(), probe) else { return Matched::No };
    Matched::Hit(Box::new(Hit {
        id: first(item, answer.id_at.as_deref()),
        at: at(plan, item),
        status: first(item, answer.status_at.as_deref()),
        ..hit
    }))
}

/// When the downstream says it got it.
fn at(plan: &Plan, item: &Value) -> Option<DateTime<Utc>> {
    let value = item.pointer(plan.answer.time_at.as_ref()?)?;
    match (&plan.time, value) {
        (Some(format), Value::String(text)) => format.read(text),
        (Some(format), Value::Number(number)) => format.read(&number.to_string()),
        (Some(_), Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
        (None, value) => time(value),
    }
}

fn hit(plan: &Plan, item: &Value, probe: &Probe) -> Matched {
    let (answer, named) = (&plan.answer, plan.named);
    let (by_key, key) = match &answer.key_at {
        Some(at) => compare(answer.matching, &texts(item, at), &probe.key),
        None if named.key => (Carried::Yes, Some(probe.key.clone())),
        None => (Carried::No, None),
    };
    let (mut by_reference, reference) = match &answer.reference_at {
        Some(at) => compare(answer.matching, &texts(item, at), &probe.reference),
        None if named.reference => (Carried::Yes, Some(probe.reference.clone())),
        None => (Carried::No, None),
    };
    // The same reference with another occurrence is another effect.
    let occurrence = answer.occurrence_at.as_ref().and_then(|at| number(item, at));
    if by_reference != Carried::No && occurrence.is_some_and(|occurrence| occurrence != probe.occurrence) {
        by_reference = Carried::No;
    }
    if by_key != Carried::Yes && by_reference != Carried::Yes {
        let unclear = by_key == Carried::Unclear || by_reference == Carried::Unclear;
        return if unclear { Matched::Unclear } else { Matched::No };
    }
    Matched::Hit(Box::new(Hit {
        id: first(item, answer.id_at.as_deref()),
        key,
        reference,
        attempt: answer.attempt_at.as_ref().and_then(|at| number(item, at)),
        at: at(plan, item),
        status: first(item, answer.status_at.as_deref()),
        other_recipient: answer.recipient_at.as_ref().is_some_and(|at| {
            let named = texts(item, at);
            !probe.recipient.is_empty()
                && !named.is_empty()
                && !named.iter().any(|each| same_recipient(each, &probe.recipient))
        }),
        contradicts: None,
    }))
}

/// Compares what an item carries with a name; the second part is what is kept of it as evidence.
fn compare(matching: Match, texts: &[String], name: &str) -> (Carried, Option<String>) {
    if name.is_empty() {
        return (Carried::No, None);
    }
    match matching {
        Match::Eq => {
            let same = texts.iter().find(|text| text.trim().eq_ignore_ascii_case(name));
            let kept = same.or(texts.first()).map(|text| cut(text.trim()));
            (if same.is_some() { Carried::Yes } else { Carried::No }, kept)
        }
        Match::Token | Match::Prefix | Match::Suffix | Match::Header => {
            let best = texts.iter().map(|text| carried(matching, text.trim(), name)).min().unwrap_or(Carried::No);
            // The surrounding text is payload; only the name itself is kept.
            (best, (best == Carried::Yes).then(|| name.to_owned()))
        }
    }
}

/// The name as a word, where `matching` looks for it.
fn carried(matching: Match, text: &str, name: &str) -> Carried {
    // What follows or precedes the name by two characters decides whether it is a word; the rest of the text is left out, so
    // that the name in another place does not count.
    let there = match matching {
        Match::Prefix => text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)),
        Match::Suffix => {
            let start = text.len().checked_sub(name.len()).and_then(|start| text.get(start..));
            start.is_some_and(|end| end.eq_ignore_ascii_case(name))
        }
        Match::Eq | Match::Token | Match::Header => true,
    };
    if !there {
        return Carried::No;
    }
    let around: String = match matching {
        Match::Prefix => text.chars().take(name.chars().count() + 2).collect(),
        Match::Suffix => {
            let skip = text.chars().count().saturating_sub(name.chars().count() + 2);
            text.chars().skip(skip).collect()
        }
        Match::Eq | Match::Token | Match::Header => text.to_owned(),
    };
    mark::carried(&around, name)
}

/// Same person in other spelling: case of mail addresses; phone numbers without plus or with separators.
pub(in crate::look_up) fn same_recipient(carried: &str, recipient: &str) -> bool {
    let carried = carried.trim();
    if recipient.starts_with('+') {
        let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
        let seen = digits(carried);
        let wanted = digits(recipient);
        return seen == wanted || seen.strip_prefix("00") == Some(wanted.as_str());
    }
    let address = match (carried.rfind('<'), carried.rfind('>')) {
        (Some(open), Some(close)) if open < close => &carried[open + 1..close],
        (Some(_) | None, Some(_) | None) => carried,
    };
    address.eq_ignore_ascii_case(recipient)
}

/// The texts at a pointer: a string, a number, or an array of them.
pub(super) fn texts(item: &Value, at: &str) -> Vec<String> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match item.pointer(at) {
        Some(Value::Array(list)) => list.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    }
}

fn first(item: &Value, at: Option<&str>) -> Option<String> {
    texts(item, at?).first().map(|text| cut(text))
}

fn number(item: &Value, at: &str) -> Option<i32> {
    texts(item, at).first()?.trim().parse().ok()
}

/// The beginning of a text, in a form that can be kept and shown.
fn cut(text: &str) -> String {
    text.chars().take(KEPT).map(|c| if plain::is_odd(c) { ' ' } else { c }).collect()
}

/// RFC 3339, RFC 2822, or seconds or milliseconds since 1970.
pub(in crate::look_up) fn time(value: &Value) -> Option<DateTime<Utc>> {
    let seconds = |number: i64| match number {
        0..100_000_000_000 => DateTime::from_timestamp(number, 0),
        100_000_000_000.. => DateTime::from_timestamp_millis(number),
        i64::MIN..0 => None,
    };
    match value {
        Value::String(text) => DateTime::parse_from_rfc3339(text)
            .or_else(|_| DateTime::parse_from_rfc2822(text))
            .map(|at| at.to_utc())
            .ok()
            .or_else(|| text.parse().ok().and_then(seconds)),
        Value::Number(number) => number.as_i64().and_then(seconds),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_means_the_whole_value_in_any_case() {
        let compare = |text: &str| compare(Match::Eq, &[text.to_owned()], "inv-229").0;
        assert_eq!(compare("INV-229"), Carried::Yes);
        assert_eq!(compare(" INV-229\r\n"), Carried::Yes);
        assert_eq!(compare("INV-2291"), Carried::No);
        assert_eq!(compare("A INV-229"), Carried::No);
    }

    #[test]
    fn a_name_at_one_end_of_a_text_is_a_word_there() {
        let compare = |matching, text: &str| compare(matching, &[text.to_owned()], "inv-229").0;
        for (text, prefix, suffix) in [
            ("INV-229", Carried::Yes, Carried::Yes),
            ("INV-229; second try", Carried::Yes, Carried::No),
            ("your INV-229", Carried::No, Carried::Yes),
            ("INV-2291 INV-229", Carried::No, Carried::Yes),
            ("INV-229 INV-2291", Carried::Yes, Carried::No),
            ("xINV-229", Carried::No, Carried::No),
            ("INV-229.1", Carried::Unclear, Carried::No),
            ("é", Carried::No, Carried::No),
        ] {
            assert_eq!(compare(Match::Prefix, text), prefix, "{text}");
            assert_eq!(compare(Match::Suffix, text), suffix, "{text}");
        }
    }

    #[test]
    fn an_empty_name_matches_nothing() {
        assert_eq!(compare(Match::Eq, &[String::new()], "").0, Carried::No);
        assert_eq!(compare(Match::Token, &["x".to_owned()], "").0, Carried::No);
    }

    #[test]
    fn one_person_is_known_in_several_spellings() {
        for (carried, recipient, same) in [
            ("A <Ap@Acme.test>", "ap@acme.test", true),
            ("ap@acme.test", "ap@acme.test", true),
            ("b@acme.test", "ap@acme.test", false),
            ("4915112345678", "+4915112345678", true),
            ("004915112345678", "+4915112345678", true),
            ("+49 151 1234-5678", "+4915112345678", true),
            ("+4915112345679", "+4915112345678", false),
        ] {
            assert_eq!(same_recipient(carried, recipient), same, "{carried}");
        }
    }

    #[test]
    fn times_are_read_in_the_usual_spellings() {
        let expected = DateTime::from_timestamp(1_741_127_400, 0);
        for value in [
            json!("2025-03-04T22:30:00Z"),
            json!("2025-03-05T00:30:00+02:00"),
            json!("Tue, 4 Mar 2025 22:30:00 +0000"),
            json!(1_741_127_400),
            json!("1741127400"),
            json!(1_741_127_400_000_i64),
        ] {
            assert_eq!(time(&value), expected, "{value}");
        }
        assert_eq!(time(&json!("yesterday")), None);
        assert_eq!(time(&json!(-1)), None);
    }
}
