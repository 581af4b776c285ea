//! Words, strings and lists of an IMAP command (RFC 3501 section 4).

/// A part of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// An atom, a set, or a FETCH item with its brackets.
    Word(String),
    /// A quoted string or a literal.
    Text(String),
    /// In parentheses.
    List(Vec<Token>),
}

impl Token {
    /// The text of a word or string.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Word(text) | Self::Text(text) => Some(text),
            Self::List(_) => None,
        }
    }
}

/// A command as it came: text, and the literals between.
pub(super) enum Piece {
    Line(String),
    Literal(Vec<u8>),
}

/// `{12}` or `{12+}` at the end of a line: the length, and whether the client waits for a go.
pub(super) fn literal(line: &str) -> Option<(&str, usize, bool)> {
    let (text, length) = line.strip_suffix('}')?.rsplit_once('{')?;
    let (length, waits) = length.strip_suffix('+').map_or((length, true), |length| (length, false));
    Some((text, length.parse().ok()?, waits))
}

/// Splits a command; `None` where it is no IMAP.
pub(super) fn tokens(pieces: &[Piece]) -> Option<Vec<Token>> {
    let mut stack = vec![Vec::new()];
    for piece in pieces {
        match piece {
            Piece::Literal(bytes) => {
                stack.last_mut()?.push(Token::Text(String::from_utf8_lossy(bytes).into_owned()));
            }
            Piece::Line(line) => scan(line, &mut stack)?,
        }
    }
    let tokens = stack.pop()?;
    stack.is_empty().then_some(tokens)
}

fn scan(line: &str, stack: &mut Vec<Vec<Token>>) -> Option<()> {
    let mut rest = line.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            ' ' => {}
            '(' => stack.push(Vec::new()),
            ')' => {
                let list = stack.pop()?;
                stack.last_mut()?.push(Token::List(list));
            }
            '"' => {
                let mut text = String::new();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '\\' => text.push(rest.next()?),
                        other => text.push(other),
                    }
                }
                stack.last_mut()?.push(Token::Text(text));
            }
            other => {
                let mut word = String::from(other);
                let mut inside = other == '[';
                while let Some(next) = rest.peek() {
                    match next {
                        ' ' | '(' | ')' if !inside => break,
                        '[' => inside = true,
                        ']' => inside = false,
                        _ => {}
                    }
                    word.extend(rest.next());
                }
                stack.last_mut()?.push(Token::Word(word));
            }
        }
    }
    Some(())
}

/// A set such as `1:4,9,12:*`, as ranges; `*` is the largest number there is.
pub(super) fn set(text: &str, largest: u32) -> Option<Vec<std::ops::RangeInclusive<u32>>> {
    let number = |text: &str| if text == "*" { Some(largest) } else { text.parse().ok().filter(|n| *n > 0) };
    text.split(',')
        .map(|part| {
            let (a, b) = part.split_once(':').unwrap_or((part, part));
            let (a, b) = (number(a)?, number(b)?);
            // `9:*` with a largest of 7 means 7:9 (RFC 3501 section 9, seq-range).
            Some(a.min(b)..=a.max(b))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_item_keeps_its_brackets() {
        let line = r#"UID FETCH 1:* (UID BODY.PEEK[HEADER.FIELDS (MESSAGE-ID "X-A")])"#;
        let tokens = tokens(&[Piece::Line(line.into())]);
        let word = |text: &str| Token::Word(text.into());
        let items = vec![word("UID"), word(r#"BODY.PEEK[HEADER.FIELDS (MESSAGE-ID "X-A")]"#)];
        assert_eq!(tokens, Some(vec![word("UID"), word("FETCH"), word("1:*"), Token::List(items)]));
    }

    #[test]
    fn a_range_beyond_the_last_names_the_last() {
        assert_eq!(set("9:*", 7), Some(vec![7..=9]));
        assert_eq!(set("1,x", 7), None);
    }
}
