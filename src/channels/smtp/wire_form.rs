//! How a message looks on the wire, and how a reply looks in the record. Used by `dialogue`.

use super::talk::Reply;
use crate::domain::plain::is_odd;

/// A dot at the beginning of a line is doubled (RFC 5321 section 4.5.2); the last CRLF is left to the end that is held back.
pub fn stuffed(bytes: &[u8]) -> Vec<u8> {
    let bytes = bytes.strip_suffix(b"\r\n").unwrap_or(bytes);
    let mut out = Vec::with_capacity(bytes.len() + 16);
    let mut at_start = true;
    for &byte in bytes {
        if at_start && byte == b'.' {
            out.push(b'.');
        }
        out.push(byte);
        at_start = byte == b'\n';
    }
    out
}

/// The reply for the record, without the recipient that relays like to repeat.
pub fn excerpt(reply: &Reply, recipient: &str) -> String {
    let text: String = reply.text().chars().map(|c| if is_odd(c) { ' ' } else { c }).take(2000).collect();
    let (lower, wanted) = (text.to_ascii_lowercase(), recipient.to_ascii_lowercase());
    let mut out = String::new();
    let mut from = 0;
    for (at, found) in lower.match_indices(&wanted) {
        out.push_str(text.get(from..at).unwrap_or_default());
        out.push_str("(recipient)");
        from = at + found.len();
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out.chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_at_the_start_of_a_line_are_doubled_and_the_end_is_left_open() {
        assert_eq!(stuffed(b".a\r\n..\r\nb.\r\n.\r\n"), b"..a\r\n...\r\nb.\r\n..".to_vec());
        assert_eq!(stuffed(b"a\r\n"), b"a".to_vec());
        assert_eq!(stuffed(b""), b"".to_vec());
    }

    #[test]
    fn the_record_of_a_reply_does_not_name_the_recipient() {
        let reply = Reply { code: 550, lines: vec!["<AP@acme.test>: no such user ap@ACME.test".to_owned()] };
        assert_eq!(excerpt(&reply, "ap@acme.test"), "<(recipient)>: no such user (recipient)");
        let endless = Reply { code: 550, lines: vec!["x".repeat(5000)] };
        assert_eq!(excerpt(&endless, "ap@acme.test").len(), 500);
    }
}
