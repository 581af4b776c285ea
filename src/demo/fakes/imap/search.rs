//! SEARCH: header values match as substrings in any case, as RFC 3501 6.4.4 has it.

use chrono::NaiveDate;

use super::{
    super::mailbox::{Stored, header},
    Index,
    token::{Token, set},
};

const USUAL: [&str; 8] = ["subject", "from", "to", "cc", "bcc", "date", "message-id", "in-reply-to"];

/// What one mail is matched with.
pub(super) struct Candidate<'a> {
    pub(super) mail: &'a Stored,
    pub(super) sequence: u32,
    pub(super) largest_uid: u32,
    pub(super) largest_sequence: u32,
    pub(super) index: Index,
}

/// Whether the mail fits all keys; `None` for a key that is not known here.
pub(super) fn fits(candidate: &Candidate<'_>, keys: &[Token]) -> Option<bool> {
    let mut keys = keys.iter();
    let mut all = true;
    while let Some(key) = keys.next() {
        all &= one(candidate, key, &mut keys)?;
    }
    Some(all && candidate.index != Index::Empty)
}

fn one(c: &Candidate<'_>, key: &Token, rest: &mut std::slice::Iter<'_, Token>) -> Option<bool> {
    let word = match key {
        Token::List(list) => return fits(c, list),
        Token::Word(word) => word,
        Token::Text(_) => return None,
    };
    let upper = word.to_ascii_uppercase();
    let mut text = || rest.next().and_then(Token::text);
    let internal = c.mail.internal_date.date_naive();
    Some(match upper.as_str() {
        "ALL" | "UNSEEN" | "UNDELETED" | "UNANSWERED" | "UNFLAGGED" | "UNDRAFT" | "OLD" => true,
        "SEEN" | "DELETED" | "ANSWERED" | "FLAGGED" | "DRAFT" | "NEW" | "RECENT" => false,
        "SINCE" => internal >= date(text()?)?,
        "BEFORE" => internal < date(text()?)?,
        "ON" => internal == date(text()?)?,
        "SENTSINCE" => sent(c.mail)? >= date(text()?)?,
        "SENTBEFORE" => sent(c.mail)? < date(text()?)?,
        "HEADER" => {
            let (name, value) = (text()?.to_ascii_lowercase(), text()?);
            knows(c.index, &name) && contains(header(&c.mail.raw, &name), value)
        }
        "SUBJECT" | "FROM" | "TO" | "CC" => contains(header(&c.mail.raw, &upper), text()?),
        "TEXT" | "BODY" => contains(Some(String::from_utf8_lossy(&c.mail.raw).into_owned()), text()?),
        "UID" => set(text()?, c.largest_uid)?.iter().any(|range| range.contains(&c.mail.uid)),
        "NOT" => !one(c, rest.next()?, rest)?,
        "OR" => {
            let first = one(c, rest.next()?, rest)?;
            let second = one(c, rest.next()?, rest)?;
            first || second
        }
        other => set(other, c.largest_sequence)?.iter().any(|range| range.contains(&c.sequence)),
    })
}

fn knows(index: Index, name: &str) -> bool {
    match index {
        Index::Whole => true,
        Index::UsualHeaders => USUAL.contains(&name),
        Index::Empty => false,
    }
}

/// An empty value fits every mail that has the field.
fn contains(value: Option<String>, part: &str) -> bool {
    value.is_some_and(|value| value.to_lowercase().contains(&part.to_lowercase()))
}

fn date(text: &str) -> Option<NaiveDate> {
    NaiveDate::parse_from_str(text, "%d-%b-%Y").ok()
}

fn sent(mail: &Stored) -> Option<NaiveDate> {
    let seconds = header(&mail.raw, "date").and_then(|text| mailparse::dateparse(&text).ok());
    Some(chrono::DateTime::from_timestamp(seconds.unwrap_or(0), 0)?.date_naive())
}
