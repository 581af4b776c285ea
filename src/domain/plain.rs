//! What others wrote, as it may be shown: one line, nothing in it that commands a terminal or turns the text around.
//!
//! Used by adapters for what they keep as evidence (Postgres keeps no U+0000) and by everything that prints.

/// Control characters (C0, DEL, C1), line and paragraph separators, and what changes the direction of text
/// (Unicode 16.0, section 23.2: bidirectional format characters).
pub fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with a space for every such character.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_odd(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_becomes_a_space() {
        assert_eq!(plain("a\u{1b}[31m\u{9b}b\r\n\u{0}\u{7f}\u{2028}\u{202e}\u{2066}c é漢"), "a [31m b       c é漢");
    }
}
