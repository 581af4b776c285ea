//! FETCH: the items of one mail.

use super::super::mailbox::Stored;
use super::token::Token;

/// `* 3 FETCH (…)`; `None` for an item that is not known here.
pub(super) fn row(sequence: usize, mail: &Stored, items: &[String]) -> Option<Vec<u8>> {
    let mut row = format!("* {sequence} FETCH (").into_bytes();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            row.push(b' ');
        }
        row.extend(value(mail, item)?);
    }
    row.extend_from_slice(b")\r\n");
    Some(row)
}

/// The items of a FETCH, macros resolved; with UID where the command was UID FETCH.
pub(super) fn items(wanted: &Token, by_uid: bool) -> Option<Vec<String>> {
    let mut items: Vec<String> = match wanted {
        Token::List(list) => list.iter().map(|item| item.text().map(str::to_owned)).collect::<Option<_>>()?,
        Token::Word(word) if word.eq_ignore_ascii_case("FAST") => {
            ["FLAGS", "INTERNALDATE", "RFC822.SIZE"].map(str::to_owned).to_vec()
        }
        Token::Word(word) => vec![word.clone()],
        Token::Text(_) => return None,
    };
    if by_uid && !items.iter().any(|item| item.eq_ignore_ascii_case("UID")) {
        items.insert(0, "UID".into());
    }
    Some(items)
}

fn value(mail: &Stored, item: &str) -> Option<Vec<u8>> {
    let upper = item.to_ascii_uppercase();
    let plain = match upper.as_str() {
        "UID" => format!("UID {}", mail.uid),
        "FLAGS" => "FLAGS ()".to_owned(),
        "INTERNALDATE" => format!("INTERNALDATE \"{}\"", mail.internal_date.format("%e-%b-%Y %H:%M:%S %z")),
        "RFC822.SIZE" => format!("RFC822.SIZE {}", mail.raw.len()),
        "RFC822" => return Some(block("RFC822", &mail.raw)),
        "RFC822.HEADER" => return Some(block("RFC822.HEADER", head(&mail.raw))),
        _ => return section(mail, item),
    };
    Some(plain.into_bytes())
}

/// `BODY[…]` and `BODY.PEEK[…]`; a read-only folder sets no flag with either.
fn section(mail: &Stored, item: &str) -> Option<Vec<u8>> {
    let (name, rest) = item.split_once('[')?;
    if !name.eq_ignore_ascii_case("BODY") && !name.eq_ignore_ascii_case("BODY.PEEK") {
        return None;
    }
    let section = rest.strip_suffix(']')?;
    let label = format!("BODY[{section}]");
    let upper = section.to_ascii_uppercase();
    let head = head(&mail.raw);
    if let Some(names) = upper.strip_prefix("HEADER.FIELDS ") {
        return Some(block(&label, &fields(head, names, true)?));
    }
    if let Some(names) = upper.strip_prefix("HEADER.FIELDS.NOT ") {
        return Some(block(&label, &fields(head, names, false)?));
    }
    match upper.as_str() {
        "" => Some(block(&label, &mail.raw)),
        "HEADER" => Some(block(&label, head)),
        "TEXT" => Some(block(&label, mail.raw.get(head.len()..)?)),
        _ => None,
    }
}

fn block(label: &str, bytes: &[u8]) -> Vec<u8> {
    let mut block = format!("{label} {{{}}}\r\n", bytes.len()).into_bytes();
    block.extend_from_slice(bytes);
    block
}

/// The head with the empty line that ends it.
fn head(raw: &[u8]) -> &[u8] {
    let end = raw.windows(4).position(|four| four == b"\r\n\r\n").map_or(raw.len(), |at| at + 4);
    raw.get(..end).unwrap_or(raw)
}

/// The named fields (or all others) as they stand, folds included, and the empty line.
fn fields(head: &[u8], names: &str, named: bool) -> Option<Vec<u8>> {
    let names: Vec<String> = names
        .strip_prefix('(')?
        .strip_suffix(')')?
        .split_ascii_whitespace()
        .map(|name| name.trim_matches('"').to_owned())
        .collect();
    let mut kept = Vec::new();
    let mut keep = false;
    for line in head.split_inclusive(|byte| *byte == b'\n').filter(|line| *line != b"\r\n") {
        if !line.starts_with(b" ") && !line.starts_with(b"\t") {
            let name: Vec<u8> = line.iter().copied().take_while(|byte| *byte != b':').collect();
            let name = String::from_utf8_lossy(&name).trim().to_ascii_uppercase();
            keep = names.contains(&name) == named;
        }
        if keep {
            kept.extend_from_slice(line);
        }
    }
    kept.extend_from_slice(b"\r\n");
    Some(kept)
}
