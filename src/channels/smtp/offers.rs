//! What a relay says in answer to EHLO that it can do.

use super::talk::Reply;

/// The extensions that change what is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// RFC 3207.
    pub starttls: bool,
    /// RFC 3461.
    pub dsn: bool,
    /// RFC 1870.
    pub size: bool,
    /// The largest mail it takes, octets; `None` where it names no limit.
    pub largest: Option<u64>,
    /// RFC 6531.
    pub smtputf8: bool,
    /// RFC 6152.
    pub eight_bit: bool,
    /// RFC 4616 in RFC 4954.
    pub auth_plain: bool,
    /// The old two-step form.
    pub auth_login: bool,
}

impl Offers {
    /// Reads the lines after the first, which is a greeting.
    pub fn read(reply: &Reply) -> Self {
        let mut offers = Self::default();
        for line in reply.lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            // Some old relays write AUTH=LOGIN.
            let mut words = line.split([' ', '=']).filter(|word| !word.is_empty());
            match words.next() {
                Some("STARTTLS") => offers.starttls = true,
                Some("DSN") => offers.dsn = true,
                Some("SIZE") => {
                    offers.size = true;
                    // Zero means no fixed limit (RFC 1870 section 4).
                    offers.largest = words.next().and_then(|word| word.parse().ok()).filter(|largest| *largest > 0);
                }
                Some("SMTPUTF8") => offers.smtputf8 = true,
                Some("8BITMIME") => offers.eight_bit = true,
                Some("AUTH") => {
                    for mechanism in words {
                        offers.auth_plain |= mechanism == "PLAIN";
                        offers.auth_login |= mechanism == "LOGIN";
                    }
                }
                Some(_) | None => {}
            }
        }
        offers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_line_offers_nothing_and_case_does_not_matter() {
        let lines = ["STARTTLS relay.test", "size 10240000", "Auth=LOGIN", "AUTH PLAIN XOAUTH2", "dsn"];
        let reply = Reply { code: 250, lines: lines.map(str::to_owned).to_vec() };
        let wanted = Offers {
            size: true,
            largest: Some(10_240_000),
            auth_plain: true,
            auth_login: true,
            dsn: true,
            ..Offers::default()
        };
        assert_eq!(Offers::read(&reply), wanted);
    }
}
