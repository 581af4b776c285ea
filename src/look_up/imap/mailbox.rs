//! Names of mailboxes on the wire: modified UTF-7 (RFC 3501 5.1.3). A name may be given as people see it or in that spelling.

use base64::{
    Engine,
    alphabet::IMAP_MUTF7,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};

const MUTF7: GeneralPurpose = GeneralPurpose::new(&IMAP_MUTF7, NO_PAD);

/// The name as it goes on the wire.
///
/// # Errors
/// The rule: an ASCII name must be right as it stands, because both readings of `&` are possible.
pub(super) fn on_the_wire(name: &str) -> Result<String, &'static str> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("must be a name without control characters");
    }
    if !name.is_ascii() {
        return Ok(encode(name));
    }
    match decode(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err("must write & as &- (an ASCII name is taken as it goes on the wire: modified UTF-7)"),
    }
}

fn encode(name: &str) -> String {
    let mut wire = String::new();
    let mut foreign: Vec<u8> = Vec::new();
    let close = |foreign: &mut Vec<u8>, wire: &mut String| {
        if !foreign.is_empty() {
            wire.push('&');
            wire.push_str(&MUTF7.encode(&foreign));
            wire.push('-');
            foreign.clear();
        }
    };
    for c in name.chars() {
        if c.is_ascii() {
            close(&mut foreign, &mut wire);
            wire.push(c);
            if c == '&' {
                wire.push('-');
            }
        } else {
            foreign.extend(c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| unit.to_be_bytes()));
        }
    }
    close(&mut foreign, &mut wire);
    wire
}

/// The name as people see it; `None` where it is no modified UTF-7.
fn decode(wire: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = wire;
    while let Some((plain, after)) = rest.split_once('&') {
        name.push_str(plain);
        let (inside, after) = after.split_once('-')?;
        if inside.is_empty() {
            name.push('&');
        } else {
            let bytes = MUTF7.decode(inside).ok()?;
            let (pairs, odd) = bytes.as_chunks::<2>();
            if !odd.is_empty() {
                return None;
            }
            let units: Vec<u16> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
            name.push_str(&String::from_utf16(&units).ok()?);
        }
        rest = after;
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;

    #[test]
    fn names_go_out_in_modified_utf_7() {
        for (name, wire) in [
            ("INBOX", "INBOX"),
            // The examples of RFC 3501.
            ("~peter/mail/台北/日本語", "~peter/mail/&U,BTFw-/&ZeVnLIqe-"),
            ("Entwürfe", "Entw&APw-rfe"),
            ("Grüße & mehr", "Gr&APwA3w-e &- mehr"),
            ("Entw&APw-rfe", "Entw&APw-rfe"),
            ("R&-D", "R&-D"),
            ("📬", "&2D3crA-"),
        ] {
            assert_eq!(on_the_wire(name).unwrap(), wire);
        }
        for name in ["", "a\nb", "R&D", "x&!-", "x&AP-", "x&A"] {
            assert!(on_the_wire(name).is_err(), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_was_encoded_is_read_again(name in "[^\\p{Cc}]{1,20}") {
            let wire = encode(&name);
            proptest::prop_assert!(wire.is_ascii());
            let read = decode(&wire);
            proptest::prop_assert_eq!(read.as_deref(), Some(name.as_str()));
        }
    }
}
