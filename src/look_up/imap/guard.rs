//! Looks at what a server says before the library's parser does, and lets nothing through that would end it: a panic quotes
//! what it stumbled over, and a nesting without bound ends the process.
//!
//! imap-proto 0.17 stumbles over octets outside ASCII right behind a response code, over an INTERNALDATE of NIL, over names and
//! values in METADATA, and over deep BODYSTRUCTUREs. None of them is part of an answer to what is asked here. Literals are
//! mail: they are counted, and passed on unseen.

/// Longest line, literals left out.
const LINE: usize = 65_536;
/// Deepest parentheses of a line; an answer to our FETCH has two.
const DEPTH: u32 = 16;

/// Where the reading stands.
#[derive(Debug, Default)]
pub struct Guard {
    /// The line since its beginning, or since its last literal.
    line: Vec<u8>,
    /// It continues behind a literal.
    continued: bool,
    depth: u32,
    /// Octets of a literal that are still to come.
    literal: u64,
}

/// It must not reach the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

impl Guard {
    /// Looks at the next octets. Of a server that says `left` octets at most, a longer literal does not end either.
    ///
    /// # Errors
    /// [`Refused`]; then nothing more may be passed on.
    pub fn look(&mut self, mut octets: &[u8], left: u64) -> Result<(), Refused> {
        while let [octet, rest @ ..] = octets {
            if self.literal > 0 {
                let skipped = usize::try_from(self.literal).unwrap_or(usize::MAX).min(octets.len());
                self.literal -= skipped as u64;
                octets = octets.get(skipped..).unwrap_or_default();
                continue;
            }
            self.take(*octet)?;
            if *octet == b'\n' {
                self.end_of_line(left)?;
            }
            octets = rest;
        }
        Ok(())
    }

    fn take(&mut self, octet: u8) -> Result<(), Refused> {
        let behind_a_code = self.line.last() == Some(&b']') && !octet.is_ascii();
        self.line.push(octet);
        match octet {
            b'(' => self.depth += 1,
            b')' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let no_date = matches!(octet, b'l' | b'L') && ends(&self.line, b"INTERNALDATE NIL");
        let metadata = !self.continued && self.line.eq_ignore_ascii_case(b"* METADATA");
        if behind_a_code || no_date || metadata || self.depth > DEPTH || self.line.len() > LINE {
            return Err(Refused);
        }
        Ok(())
    }

    /// A literal follows, or the line is over. Only where the parser takes it for a literal as well may it go by unseen: it
    /// reads a FETCH to its end or not at all.
    fn end_of_line(&mut self, left: u64) -> Result<(), Refused> {
        let length = literal(&self.line);
        if let Some(length) = length {
            if length > left || !(self.continued || is_fetch(&self.line)) {
                return Err(Refused);
            }
            self.literal = length;
        } else {
            self.depth = 0;
        }
        self.continued = length.is_some();
        self.line.clear();
        Ok(())
    }
}

/// The length that a line ends with: `{310}`.
fn literal(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"}\r\n")?;
    let digits = line.iter().rev().take_while(|octet| octet.is_ascii_digit()).count();
    let (before, digits) = line.split_at(line.len() - digits);
    before.strip_suffix(b"{")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `* 12 FETCH `
fn is_fetch(line: &[u8]) -> bool {
    let Some(line) = line.strip_prefix(b"* ") else { return false };
    let digits = line.iter().take_while(|octet| octet.is_ascii_digit()).count();
    digits > 0 && line.get(digits..digits + 7).is_some_and(|word| word.eq_ignore_ascii_case(b" FETCH "))
}

fn ends(line: &[u8], with: &[u8]) -> bool {
    line.len().checked_sub(with.len()).and_then(|at| line.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(said: &[u8]) -> Result<(), Refused> {
        let mut whole = Guard::default();
        let at_once = whole.look(said, 1000);
        // However the network cuts it.
        let mut cut = Guard::default();
        assert_eq!(said.iter().try_for_each(|octet| cut.look(&[*octet], 1000)), at_once);
        at_once
    }

    #[test]
    fn an_answer_goes_by_whatever_its_mail_says() {
        let mail = b"Subject: [x]\xe4 INTERNALDATE NIL ((((((((((((((((((((\r\n* METADATA\r\n\r\n";
        let head = format!("* 1 FETCH (UID 1 BODY[HEADER.FIELDS (TO)] {{{}}}\r\n", mail.len());
        let said =
            [b"* OK gr\xfc\xdfe\r\n* OK [UIDNEXT 2] \xfc\r\n", head.as_bytes(), mail, b" FLAGS ())\r\nA1 OK done\r\n"];
        assert_eq!(looks(&said.concat()), Ok(()));
    }

    #[test]
    fn what_the_parser_stumbles_over_does_not_reach_it() {
        let deep = [b"* 1 FETCH (BODYSTRUCTURE ".as_slice(), &[b'('; 17]].concat();
        let long = [b"* OK ".as_slice(), &[b'x'; LINE]].concat();
        let refused: [&[u8]; 8] = [
            b"* OK [UIDVALIDITY 7]\x80",
            b"+ [ALERT]\xc3",
            b"* 1 FETCH (UID 1 InternalDate nil",
            b"* 1 FETCH (BODY[] {3}\r\nabc INTERNALDATE NIL",
            b"* metadata",
            b"* 1 FETCH (BODY[] {1001}\r\n",
            &deep,
            &long,
        ];
        for said in refused {
            assert_eq!(looks(said), Err(Refused), "{}", String::from_utf8_lossy(said));
        }
    }

    #[test]
    fn what_only_looks_like_a_literal_hides_nothing() {
        assert_eq!(looks(b"* OK soon {200}\r\n"), Err(Refused));
        assert_eq!(looks(b"A1 OK {200}\r\n"), Err(Refused));
        assert_eq!(looks(b"* 1 EXISTS {200}\r\n"), Err(Refused));
        // The parser ends there, and nothing behind it is read.
        assert_eq!(looks(b"* 1 FETCH (BODY[] {99999999999999999999}\r\n* METADATA"), Err(Refused));
    }
}
