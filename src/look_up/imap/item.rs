//! One message of the mailbox as far as it is read, and whether it is what a probe looks for.
//!
//! Matching is ours alone and exact: INV-229 is not INV-2291, and a server's SEARCH is never asked.

use chrono::{DateTime, Utc};

use crate::domain::{
    plain::plain,
    question::{Hit, Probe, Seen, is_key},
};

/// The headers that are fetched.
pub const FIELDS: &str = "MESSAGE-ID X-SETTLED-KEY X-SETTLED-REFERENCE X-SETTLED-ATTEMPT TO";

/// What was read of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its position when it was read.
    pub seq: u32,
    /// When the server got it.
    pub at: DateTime<Utc>,
    keys: Vec<String>,
    ids: Vec<String>,
    references: Vec<String>,
    attempt: Option<i32>,
    to: Vec<String>,
}

impl Item {
    /// Reads the fetched header fields.
    ///
    /// # Errors
    /// When they are no header fields.
    pub fn read(seq: u32, at: DateTime<Utc>, fields: &[u8]) -> Result<Self, String> {
        let (headers, _) = mailparse::parse_headers(fields)
            .map_err(|error| format!("the headers of a message cannot be read: {error}"))?;
        let mut item =
            Self { seq, at, keys: Vec::new(), ids: Vec::new(), references: Vec::new(), attempt: None, to: Vec::new() };
        for header in &headers {
            // Our marks hold no white space: what stands there was put in by folding.
            let bare = || header.get_value().split_whitespace().collect::<String>();
            match header.get_key_ref().to_ascii_lowercase().as_str() {
                "x-settled-key" => item.keys.push(bare()),
                "x-settled-reference" => item.references.push(bare()),
                "x-settled-attempt" => item.attempt = bare().parse().ok(),
                "message-id" => item.ids.extend(local_part(&bare())),
                "to" => item.to.extend(addresses(header)),
                _ => {}
            }
        }
        Ok(item)
    }

    /// The message as something of ours, if it carries a key.
    pub fn marked(&self, id: String) -> Option<Hit> {
        let key = self.keys.iter().find(|key| is_key(key))?;
        Some(Hit {
            id: Some(id),
            key: Some(plain(key)),
            reference: self.references.first().map(|reference| plain(reference)),
            attempt: self.attempt,
            at: Some(self.at),
            status: None,
            other_recipient: false,
            contradicts: None,
        })
    }

    /// The message as a hit for `probe`, if it carries its key or its reference.
    pub fn hit(&self, id: String, probe: &Probe) -> Option<Hit> {
        let own_key = self.keys.iter().find(|key| **key == probe.key);
        let as_id = self.ids.iter().find(|id| **id == probe.key);
        let reference = self.references.iter().find(|reference| same_reference(reference, &probe.reference));
        if own_key.is_none() && as_id.is_none() && reference.is_none() {
            return None;
        }
        let key = own_key.or(as_id).or(self.keys.first());
        Some(Hit {
            id: Some(id),
            key: key.map(|key| plain(key)),
            reference: reference.or(self.references.first()).map(|reference| plain(reference)),
            attempt: self.attempt,
            at: Some(self.at),
            status: None,
            other_recipient: !probe.recipient.is_empty()
                && !self.to.is_empty()
                && !self.to.contains(&normal(&probe.recipient)),
            contradicts: None,
        })
    }
}

/// What the items say about `probe`. `gap` is why they are not all there are.
pub fn judge<'a>(probe: &Probe, items: impl Iterator<Item = (String, &'a Item)>, gap: Option<&str>) -> Seen {
    if probe.key.is_empty() {
        return Seen::CannotTell { why: "the probe names no key".to_owned() };
    }
    let hits: Vec<Hit> = items.filter_map(|(id, item)| item.hit(id, probe)).collect();
    match gap {
        // What was found is there, whatever was not read.
        _ if !hits.is_empty() => Seen::Hits { hits },
        Some(why) => Seen::CannotTell { why: why.to_owned() },
        None => Seen::Nothing,
    }
}

fn same_reference(carried: &str, wanted: &str) -> bool {
    !wanted.is_empty() && carried.eq_ignore_ascii_case(wanted)
}

/// `key` of `<key@domain>`.
fn local_part(id: &str) -> Option<String> {
    let inner = id.strip_prefix('<')?.strip_suffix('>')?;
    inner.rsplit_once('@').map(|(local, _)| local.to_owned())
}

fn addresses(header: &mailparse::MailHeader<'_>) -> Vec<String> {
    let Ok(list) = mailparse::addrparse_header(header) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for address in list.iter() {
        match address {
            mailparse::MailAddr::Single(single) => found.push(normal(&single.addr)),
            mailparse::MailAddr::Group(group) => found.extend(group.addrs.iter().map(|single| normal(&single.addr))),
        }
    }
    found
}

/// Local part as given, domain in lower case.
fn normal(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{local}@{}", domain.to_ascii_lowercase()),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;
    use crate::domain::question::Role;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn probe() -> Probe {
        Probe {
            role: Role::Subject,
            key: KEY.to_owned(),
            reference: "inv-2291".to_owned(),
            spelled: None,
            occurrence: 1,
            recipient: "ap@acme.test".to_owned(),
            sent_from: DateTime::UNIX_EPOCH,
            sent_until: DateTime::UNIX_EPOCH,
        }
    }

    fn hit(fields: &str) -> Option<Hit> {
        Item::read(1, DateTime::UNIX_EPOCH, fields.as_bytes()).unwrap().hit("7/1".to_owned(), &probe())
    }

    #[test]
    fn a_key_is_found_in_its_own_header_or_as_message_id_and_nowhere_else() {
        assert_eq!(hit(&format!("X-Settled-Key: {KEY}\r\n\r\n")).unwrap().key.as_deref(), Some(KEY));
        assert_eq!(hit(&format!("Message-ID: <{KEY}@example.test>\r\n\r\n")).unwrap().key.as_deref(), Some(KEY));
        assert_eq!(hit(&format!("Message-ID: <{KEY}0@example.test>\r\n\r\n")), None);
        assert_eq!(hit(&format!("X-Settled-Key: x{KEY}\r\n\r\n")), None);
        assert_eq!(hit(&format!("Message-ID: <{}@example.test>\r\n\r\n", KEY.to_uppercase())), None);
        assert_eq!(hit("\r\n"), None);
    }

    #[test]
    fn a_reference_is_compared_whole_and_without_case() {
        assert_eq!(hit("X-Settled-Reference: INV-2291\r\n\r\n").unwrap().reference.as_deref(), Some("INV-2291"));
        for near in ["INV-229", "INV-22910", "XINV-2291", ""] {
            assert_eq!(hit(&format!("X-Settled-Reference: {near}\r\n\r\n")), None, "{near}");
        }
    }

    #[test]
    fn folding_hides_nothing() {
        let folded = hit("X-Settled-Reference:\r\n\tINV-2291\r\nx-settled-attempt:\r\n  2\r\n\r\n").unwrap();
        assert_eq!((folded.reference.as_deref(), folded.attempt), (Some("INV-2291"), Some(2)));
        let (front, back) = KEY.split_at(10);
        assert!(hit(&format!("X-Settled-Key: {front}\r\n {back}\r\n\r\n")).is_some());
    }

    #[test]
    fn another_recipient_is_told_from_another_spelling() {
        let other = |to: &str| hit(&format!("X-Settled-Key: {KEY}\r\nTo: {to}\r\n\r\n")).unwrap().other_recipient;
        assert!(!other("ap@ACME.test"));
        assert!(!other("\"A, P\" <ap@acme.test>"));
        assert!(!other("x@y.test, ap@acme.test"));
        assert!(other("AP@acme.test"));
        assert!(other("b@acme.test"));
    }

    proptest::proptest! {
        #[test]
        fn no_header_of_a_stranger_breaks_the_reading(fields in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            if let Ok(item) = Item::read(1, DateTime::UNIX_EPOCH, &fields) {
                proptest::prop_assert!(item.hit("7/1".to_owned(), &probe()).is_none());
            }
        }
    }
}
