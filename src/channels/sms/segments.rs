//! How many parts a text is billed as. GSM 03.38 (3GPP TS 23.038) 7-bit where every character is in its tables, else UCS-2.

/// The basic table without escape; each counts one septet.
const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                     ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";

/// The extension table; each counts two septets, which stay together.
const EXTENSION: &str = "\u{c}^{}\\[~]|€";

/// How a text is written on the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// 7 bits: 160 septets alone, 153 in each of several parts.
    Gsm7,
    /// 16 bits: 70 units alone, 67 in each of several parts.
    Ucs2,
}

/// The size of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// How it is written.
    pub encoding: Encoding,
    /// Septets or UTF-16 units.
    pub units: usize,
    /// Parts that are sent and billed; 0 for an empty text.
    pub parts: usize,
}

/// Counts a text as it stands; nothing is composed, replaced or trimmed.
pub fn size(text: &str) -> Size {
    let septets = |c: char| match c {
        c if BASIC.contains(c) => Some(1),
        c if EXTENSION.contains(c) => Some(2),
        _ => None,
    };
    let (encoding, widths, alone, joined) = match text.chars().map(septets).collect::<Option<Vec<usize>>>() {
        Some(widths) => (Encoding::Gsm7, widths, 160, 153),
        None => (Encoding::Ucs2, text.chars().map(char::len_utf16).collect(), 70, 67),
    };
    let units = widths.iter().sum();
    if units <= alone {
        return Size { encoding, units, parts: usize::from(units > 0) };
    }
    let (mut parts, mut used) = (1, 0);
    for width in widths {
        if used + width > joined {
            parts += 1;
            used = 0;
        }
        used += width;
    }
    Size { encoding, units, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> usize {
        size(text).parts
    }

    #[test]
    fn the_basic_table_has_127_characters() {
        assert_eq!(BASIC.chars().count(), 127);
        assert_eq!(EXTENSION.chars().count(), 10);
    }

    #[test]
    fn case_098_segments_are_counted_as_they_are_billed() {
        assert_eq!(parts(&"\u{1F60E}".repeat(70)), 3);
        assert_eq!(parts(&format!("{}]\u{1F60E}", "a".repeat(81))), 2);
        assert_eq!(parts(&"a".repeat(160)), 1);
        assert_eq!(parts(&"a".repeat(161)), 2);
        assert_eq!(parts(&"汉".repeat(70)), 1);
        assert_eq!(parts(&"汉".repeat(71)), 2);
        assert_eq!(parts(&"{".repeat(80)), 1);
        assert_eq!(parts(""), 0);
    }

    #[test]
    fn case_099_line_ends_accents_and_pairs_keep_their_size() {
        let (a, b) = ("a".repeat(80), "a".repeat(79));
        assert_eq!(parts(&format!("{a}\r\n{b}")), 2);
        assert_eq!(parts(&format!("{a}\n{b}")), 1);
        assert_eq!(parts(&"e\u{301}".repeat(70)), 3);
        assert_eq!(parts(&"é".repeat(70)), 1);
    }

    #[test]
    fn a_pair_is_not_split_over_two_parts() {
        // 66 units, a pair that does not fit into the 67th alone, 66 more: 134 units would be two parts, are three.
        let text = format!("{}\u{1F60E}{}", "汉".repeat(66), "汉".repeat(66));
        assert_eq!(size(&text), Size { encoding: Encoding::Ucs2, units: 134, parts: 3 });
        // The same for an extension character: 152, a two-septet one, 152.
        let text = format!("{}€{}", "a".repeat(152), "a".repeat(152));
        assert_eq!(size(&text), Size { encoding: Encoding::Gsm7, units: 306, parts: 3 });
    }
}
