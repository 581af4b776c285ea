//! Whether a text carries a name of ours as a word of its own. Used by look-ups that read texts and by channels that have
//! no other place for the reference; both must agree, or a text would be sent that cannot be found again.

/// What a text says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carried {
    /// It stands there by itself.
    Yes,
    /// It stands only where it may as well be part of a longer name (`INV-2.1`).
    Unclear,
    /// It does not stand there; INV-229 does not stand in INV-2291.
    No,
}

/// Looks for `name` in `text`, not next to one of `[A-Za-z0-9_-]`. A dot or colon may end a sentence or go on with a
/// reference: between the name and such a character it leaves the matter unclear. ASCII case does not count.
pub fn carried(text: &str, name: &str) -> Carried {
    if name.is_empty() {
        return Carried::No;
    }
    let (text, name) = (text.to_ascii_lowercase(), name.to_ascii_lowercase());
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_joint = |c: char| c == '.' || c == ':';
    let mut unclear = false;
    for (at, _) in text.match_indices(&name) {
        let mut before = text[..at].chars().rev();
        let mut after = text[at + name.len()..].chars();
        let (left, right) = (before.next(), after.next());
        if left.is_some_and(is_word) || right.is_some_and(is_word) {
            continue;
        }
        // Before the name a colon is how texts are written (`ref:INV-1`), so only a dot counts there.
        let joined = left == Some('.') && before.next().is_some_and(is_word)
            || right.is_some_and(is_joint) && after.next().is_some_and(is_word);
        if !joined {
            return Carried::Yes;
        }
        unclear = true;
    }
    if unclear { Carried::Unclear } else { Carried::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_part_of_a_longer_word() {
        for (text, expected) in [
            ("Invoice INV-229 is due", Carried::Yes),
            ("Invoice INV-229.", Carried::Yes),
            ("Invoice INV-229: due", Carried::Yes),
            ("ref:INV-229", Carried::Yes),
            ("(INV-229)", Carried::Yes),
            ("X-Ref:\r\n INV-229\r\n", Carried::Yes),
            ("ÄINV-229", Carried::Yes),
            ("Invoice INV-2291", Carried::No),
            ("Invoice xINV-229", Carried::No),
            ("A-INV-229", Carried::No),
            ("INV-229_b", Carried::No),
            ("INV-229.1", Carried::Unclear),
            ("INV-229:b", Carried::Unclear),
            ("INV-229.1 and INV-229", Carried::Yes),
            ("", Carried::No),
        ] {
            assert_eq!(carried(text, "inv-229"), expected, "{text}");
        }
        assert_eq!(carried("anything", ""), Carried::No);
    }
}
