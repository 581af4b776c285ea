//! What a run says: lines that echo the nonce and the key. Nothing else of its output means anything.
//!
//! ```text
//! settled-look-up NONCE KEY found id=pm-77 reference=INV-2291 at=2026-03-04T05:06:07Z
//! settled-look-up NONCE KEY absent
//! settled-look-up NONCE KEY unknown why=the%20index%20is%20being%20rebuilt
//! settled-look-up NONCE KEY account name=acme-production
//! ```
//!
//! Values are percent-encoded where they hold a space, a percent sign or a control character. One `found` for each item.

use percent_encoding::percent_decode_str;

use crate::{
    domain::{
        plain::plain,
        question::{Hit, Probe, Seen},
    },
    look_up::http::items::{same_recipient, time},
};

/// The first word of a line that speaks to us.
const MARK: &str = "settled-look-up";
/// Longest value that is kept, characters.
const KEPT: usize = 200;
/// Most items of one run.
const ITEMS: usize = 1000;

/// What one run came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub seen: Seen,
    /// Who the program says it was answered as.
    pub account: Option<String>,
}

/// What the program was asked.
pub(super) struct Asked<'a> {
    pub probe: &'a Probe,
    pub nonce: &'a str,
    pub shows_key: bool,
    pub absent_exit: i32,
}

#[derive(Default)]
struct Fields {
    id: Option<String>,
    key: Option<String>,
    reference: Option<String>,
    recipient: Option<String>,
    occurrence: Option<i32>,
    attempt: Option<i32>,
    at: Option<String>,
    status: Option<String>,
    why: Option<String>,
    name: Option<String>,
}

/// What its output and its exit status mean together. A status alone means nothing, nor does a line alone.
pub(super) fn read(output: &[u8], exit: Option<i32>, asked: &Asked<'_>) -> Said {
    let mut account = None;
    let seen = lines(output, exit, asked, &mut account).unwrap_or_else(|why| Seen::CannotTell { why });
    Said { seen, account }
}

fn lines(output: &[u8], exit: Option<i32>, asked: &Asked<'_>, account: &mut Option<String>) -> Result<Seen, String> {
    let (mut hits, mut absent, mut unknown) = (Vec::new(), false, None);
    for line in output.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.starts_with(MARK.as_bytes()) {
            continue;
        }
        let (word, fields) = one(line, asked)?;
        match word {
            "found" if hits.len() >= ITEMS => return Err(format!("more than {ITEMS} items")),
            "found" => hits.push(hit(fields, asked)?),
            "absent" => absent = true,
            "unknown" => unknown = Some(fields.why.unwrap_or_else(|| "without a reason".to_owned())),
            "account" => {
                let name = fields.name.ok_or("an account line without name=")?;
                if account.replace(name.clone()).is_some_and(|before| before != name) {
                    return Err("the program names two accounts".to_owned());
                }
            }
            _ => return Err("a line with a verdict that is not known".to_owned()),
        }
    }
    if let Some(why) = unknown {
        return Err(format!("the program cannot tell: {why}"));
    }
    let exit = exit.ok_or("a signal ended the program")?;
    match (hits.is_empty(), absent) {
        (true, false) => Err(format!("exit status {exit} without a line that echoes nonce and key")),
        (false, true) => Err("the program says found and absent".to_owned()),
        (false, false) if exit == 0 => Ok(Seen::Hits { hits }),
        (false, false) => Err(format!("found with exit status {exit}, which must be 0")),
        (true, true) if exit == asked.absent_exit => Ok(Seen::Nothing),
        (true, true) => Err(format!("absent with exit status {exit}, which must be {}", asked.absent_exit)),
    }
}

/// The verdict of a line and its fields. The words of a failure quote nothing.
fn one<'a>(line: &'a [u8], asked: &Asked<'_>) -> Result<(&'a str, Fields), String> {
    let text = std::str::from_utf8(line).map_err(|_| "a line to us is no UTF-8".to_owned())?;
    if text.chars().any(char::is_control) {
        return Err("a line to us holds a control character".to_owned());
    }
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    if words.next() != Some(MARK) {
        return Err("a line to us does not begin with its mark alone".to_owned());
    }
    if words.next() != Some(asked.nonce) {
        return Err("a line to us without the nonce of this run".to_owned());
    }
    if words.next() != Some(asked.probe.key.as_str()) {
        return Err("a line to us about another key".to_owned());
    }
    let verdict = words.next().ok_or("a line to us without a verdict")?;
    let mut fields = Fields::default();
    for word in words {
        let (name, value) = word.split_once('=').ok_or("a field without =")?;
        let value = percent_decode_str(value).decode_utf8().map_err(|_| "a value that is no UTF-8")?;
        set(&mut fields, name, plain(&value.chars().take(KEPT).collect::<String>()))?;
    }
    Ok((verdict, fields))
}

fn set(fields: &mut Fields, name: &str, value: String) -> Result<(), String> {
    let number = |value: &str| value.parse::<i32>().map(Some).map_err(|_| "a number that is none".to_owned());
    let twice = match name {
        "id" => fields.id.replace(value).is_some(),
        "key" => fields.key.replace(value).is_some(),
        "reference" => fields.reference.replace(value).is_some(),
        "recipient" => fields.recipient.replace(value).is_some(),
        "at" => fields.at.replace(value).is_some(),
        "status" => fields.status.replace(value).is_some(),
        "why" => fields.why.replace(value).is_some(),
        "name" => fields.name.replace(value).is_some(),
        "occurrence" => std::mem::replace(&mut fields.occurrence, number(&value)?).is_some(),
        "attempt" => std::mem::replace(&mut fields.attempt, number(&value)?).is_some(),
        _ => return Err("a field that is not known".to_owned()),
    };
    if twice { Err("a field that is given twice".to_owned()) } else { Ok(()) }
}

/// An item, compared once more: INV-229 is not INV-2291, whatever the program takes it for.
fn hit(fields: Fields, asked: &Asked<'_>) -> Result<Hit, String> {
    let probe = asked.probe;
    let key = asked.shows_key.then(|| fields.key.unwrap_or_else(|| probe.key.clone()));
    let by_key = key.as_ref().is_some_and(|key| key.eq_ignore_ascii_case(&probe.key));
    let by_reference = fields.reference.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(&probe.reference))
        && fields.occurrence.is_none_or(|own| own == probe.occurrence);
    if !by_key && !by_reference {
        return Err("an item that carries neither our key nor our reference was called found".to_owned());
    }
    let other_recipient = fields
        .recipient
        .as_ref()
        .is_some_and(|own| !probe.recipient.is_empty() && !own.is_empty() && !same_recipient(own, &probe.recipient));
    let at = match fields.at {
        Some(text) => {
            Some(time(&serde_json::Value::String(text)).ok_or("a time that cannot be read (RFC 3339, or seconds)")?)
        }
        None => None,
    };
    Ok(Hit {
        id: fields.id,
        key,
        reference: fields.reference,
        attempt: fields.attempt,
        at,
        status: fields.status,
        other_recipient,
        contradicts: None,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "a test stops loudly")]

    use chrono::DateTime;

    use super::*;
    use crate::domain::question::Role;

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const NONCE: &str = "ffeeddccbbaa99887766554433221100";

    fn said(output: &str, exit: i32, shows_key: bool) -> Said {
        let probe = Probe {
            role: Role::Subject,
            key: KEY.to_owned(),
            reference: "inv-229".to_owned(),
            spelled: None,
            occurrence: 1,
            recipient: "ap@acme.test".to_owned(),
            sent_from: DateTime::UNIX_EPOCH,
            sent_until: DateTime::UNIX_EPOCH,
        };
        let output = output.replace("$N", NONCE).replace("$K", KEY);
        read(output.as_bytes(), Some(exit), &Asked { probe: &probe, nonce: NONCE, shows_key, absent_exit: 44 })
    }

    fn why(output: &str, exit: i32) -> String {
        match said(output, exit, true).seen {
            Seen::CannotTell { why } => why,
            seen @ (Seen::Hits { .. } | Seen::Nothing) => panic!("{output}: {seen:?}"),
        }
    }

    #[test]
    fn line_and_status_together_are_an_answer() {
        let found = said(
            "log\nsettled-look-up $N $K account name=acme\nsettled-look-up $N $K found id=a%20b reference=inv-229 at=1741127400 attempt=2\r\n",
            0,
            true,
        );
        let Seen::Hits { hits } = &found.seen else { panic!("{found:?}") };
        assert_eq!((hits[0].id.as_deref(), hits[0].key.as_deref(), hits[0].attempt), (Some("a b"), Some(KEY), Some(2)));
        assert_eq!(found.account.as_deref(), Some("acme"));
        assert_eq!(said("settled-look-up $N $K absent\n", 44, true).seen, Seen::Nothing);
    }

    #[test]
    fn anything_else_proves_nothing() {
        for (output, exit, words) in [
            ("", 0, "without a line"),
            ("", 1, "without a line"),
            ("", 44, "without a line"),
            ("absent\n", 44, "without a line"),
            ("settled-look-up $N $K absent\n", 0, "must be 44"),
            ("settled-look-up $N $K absent\n", 1, "must be 44"),
            ("settled-look-up $N $K found\n", 44, "must be 0"),
            ("settled-look-up $N $K found\nsettled-look-up $N $K absent\n", 0, "found and absent"),
            ("settled-look-up $K absent\n", 44, "nonce"),
            ("settled-look-up $K $K absent\n", 44, "nonce"),
            ("settled-look-up $N 1 absent\n", 44, "another key"),
            ("settled-look-up $N $K\n", 44, "without a verdict"),
            ("settled-look-up $N $K gone\n", 44, "not known"),
            ("settled-look-up $N $K absent\nsettled-look-up x $K found\n", 44, "nonce"),
            ("settled-look-up $N $K found key=1 reference=inv-2291\n", 0, "neither our key"),
            ("settled-look-up $N $K found id=1 id=2\n", 0, "twice"),
            ("settled-look-up $N $K found colour=red\n", 0, "not known"),
            ("settled-look-up $N $K found at=yesterday\n", 0, "time"),
            ("settled-look-up $N $K unknown why=busy\n", 44, "busy"),
            ("settled-look-upper $N $K absent\n", 44, "mark"),
            (
                "settled-look-up $N $K account name=a\nsettled-look-up $N $K account name=b\nsettled-look-up $N $K absent\n",
                44,
                "two accounts",
            ),
        ] {
            let why = why(output, exit);
            assert!(why.contains(words), "{output}: {why}");
        }
    }

    #[test]
    fn a_program_that_does_not_compare_keys_finds_by_its_reference() {
        let Seen::Hits { hits } = said("settled-look-up $N $K found reference=INV-229\n", 0, false).seen else {
            panic!()
        };
        assert_eq!((hits[0].key.as_deref(), hits[0].reference.as_deref()), (None, Some("INV-229")));
        for output in [
            "settled-look-up $N $K found\n",
            "settled-look-up $N $K found reference=INV-2291\n",
            "settled-look-up $N $K found reference=INV-229 occurrence=2\n",
        ] {
            assert!(matches!(said(output, 0, false).seen, Seen::CannotTell { .. }), "{output}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_output_of_a_stranger_is_an_answer(output in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), exit in 0..256_i32) {
            let text = String::from_utf8_lossy(&output).replace('$', "");
            proptest::prop_assert!(matches!(said(&text, exit, true).seen, Seen::CannotTell { .. }));
        }
    }
}
