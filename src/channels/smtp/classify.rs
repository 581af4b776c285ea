//! The closed table of mail: which reply at which step means what. Called by `dialogue` once per attempt.
//!
//! Until the five bytes that end a message are handed over, nothing can have been accepted. What the table does not know
//! is in doubt.

use crate::domain::outcome::{DoubtKind, Outcome, Proof};

/// Greylisting wants some minutes (RFC 6647 section 4): sooner is only another refusal.
const GREYLIST_SECONDS: u64 = 300;

/// What the relay was asked when it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing; it speaks first.
    Greeting,
    /// EHLO.
    Hello,
    /// STARTTLS.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Recipient,
    /// DATA.
    Data,
    /// A part of the message, without its end.
    Body,
    /// The end of the message.
    Dot,
}

impl Step {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Greeting => "the greeting",
            Self::Hello => "EHLO",
            Self::StartTls => "STARTTLS",
            Self::Auth => "AUTH",
            Self::Mail => "MAIL",
            Self::Recipient => "RCPT",
            Self::Data => "DATA",
            Self::Body => "the message",
            Self::Dot => "the final dot",
        }
    }
}

/// What a reply means that is not the one we hoped for.
pub fn unwanted(step: Step, code: u16) -> Outcome {
    match code {
        // Before a recipient was named it is about us: the sender, too many connections, a relay that is going down.
        // 452 and 455 can be about one mail (its size, its parameters).
        421 | 450 | 451 if step == Step::Mail => throttled((code != 421).then_some(GREYLIST_SECONDS)),
        421 => match step {
            Step::Greeting | Step::Hello | Step::StartTls | Step::Auth | Step::Mail => throttled(None),
            Step::Recipient | Step::Data | Step::Body | Step::Dot => deferred(None),
        },
        // Required, too weak, wrong: our credentials, not this mail (RFC 4954 section 6).
        530 | 534 | 535 => not_sent(Proof::Parked),
        400..=499 => match step {
            Step::StartTls => not_sent(Proof::TlsFailed),
            Step::Mail | Step::Recipient | Step::Data | Step::Body | Step::Dot => deferred(Some(GREYLIST_SECONDS)),
            Step::Greeting | Step::Hello | Step::Auth => throttled(None),
        },
        500..=599 => match step {
            // It does not want us at all.
            Step::Greeting | Step::Hello | Step::Auth => not_sent(Proof::Parked),
            Step::StartTls => not_sent(Proof::TlsFailed),
            Step::Mail | Step::Recipient | Step::Data | Step::Body | Step::Dot => Outcome::Refused { code },
        },
        // A positive reply to another question, or no SMTP at all.
        _ => no_reply(step, DoubtKind::UnclearReply),
    }
}

/// What it means that a reply did not come, or could not be read.
pub fn no_reply(step: Step, doubt: DoubtKind) -> Outcome {
    match step {
        // It never came to a conversation about a mail.
        Step::Greeting | Step::Hello | Step::StartTls | Step::Auth => not_sent(Proof::NotConnected),
        Step::Dot => Outcome::Ambiguous { doubt },
        Step::Mail | Step::Recipient | Step::Data | Step::Body => not_sent(Proof::Incomplete),
    }
}

/// Proven: no effect.
pub fn not_sent(proof: Proof) -> Outcome {
    Outcome::NotSent { proof, retry_after: None }
}

fn throttled(retry_after: Option<u64>) -> Outcome {
    Outcome::NotSent { proof: Proof::Throttled, retry_after }
}

fn deferred(retry_after: Option<u64>) -> Outcome {
    Outcome::NotSent { proof: Proof::Deferred, retry_after }
}

/// The relay's name for what it took, from the text of its reply to the final dot.
///
/// Known forms: `queued as X` (Postfix), `id=X` (Exim), `X Message accepted` (Sendmail), `Ok X` (Amazon and others).
pub fn provider_id(lines: &[String]) -> Option<String> {
    let text = lines.last()?;
    let words: Vec<&str> = text.split_whitespace().skip_while(|word| is_enhanced_status(word)).collect();
    let after = |sign: &str| words.iter().position(|word| word.eq_ignore_ascii_case(sign)).map(|at| at + 1);
    let found = after("queued")
        .filter(|at| words.get(*at).is_some_and(|word| word.eq_ignore_ascii_case("as")))
        .and_then(|at| words.get(at + 1))
        .copied()
        .or_else(|| words.iter().find_map(|word| word.strip_prefix("id=")))
        .or_else(|| match words.as_slice() {
            [id, message, accepted, ..]
                if message.eq_ignore_ascii_case("message") && accepted.eq_ignore_ascii_case("accepted") =>
            {
                Some(*id)
            }
            [ok, id] if ok.trim_end_matches(':').eq_ignore_ascii_case("ok") => Some(*id),
            _ => None,
        })?;
    let id = found.trim_matches(|c: char| matches!(c, '<' | '>' | '(' | ')' | '.' | ',' | ';' | '"'));
    let fits = (4..=200).contains(&id.len())
        && id.chars().all(|c| c.is_ascii_graphic())
        && id.contains(|c: char| c.is_ascii_digit());
    fits.then(|| id.to_owned())
}

/// `2.0.0` and its like (RFC 2034).
fn is_enhanced_status(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    parts.len() == 3
        && parts.iter().all(|part| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::panic, reason = "a test stops loudly")]

    use super::*;

    const STEPS: [Step; 9] = [
        Step::Greeting,
        Step::Hello,
        Step::StartTls,
        Step::Auth,
        Step::Mail,
        Step::Recipient,
        Step::Data,
        Step::Body,
        Step::Dot,
    ];

    #[test]
    fn only_after_the_dot_can_anything_be_in_doubt() {
        for step in STEPS {
            for code in 0..=999 {
                let outcome = unwanted(step, code);
                if matches!(outcome, Outcome::Ambiguous { .. }) {
                    assert_eq!(step, Step::Dot, "{code}");
                    assert!(!(400..=599).contains(&code), "{code}");
                }
            }
        }
    }

    #[test]
    fn every_4yz_waits_for_minutes_once_the_envelope_has_begun() {
        for code in [422, 450, 451, 452, 455] {
            let Outcome::NotSent { proof: Proof::Deferred, retry_after: Some(wait) } = unwanted(Step::Recipient, code)
            else {
                panic!("{code}");
            };
            assert!(wait >= 300);
        }
        assert_eq!(unwanted(Step::Recipient, 421), Outcome::NotSent { proof: Proof::Deferred, retry_after: None });
    }

    #[test]
    fn our_credentials_park_the_destination_and_do_not_fail_the_mail() {
        for (step, code) in
            [(Step::Auth, 535), (Step::Auth, 534), (Step::Mail, 530), (Step::Greeting, 554), (Step::Auth, 504)]
        {
            assert_eq!(unwanted(step, code), not_sent(Proof::Parked), "{step:?} {code}");
        }
    }

    #[test]
    fn the_name_of_the_queue_entry_is_read_from_the_reply() {
        let id = |text: &str| provider_id(&[text.to_owned()]);
        assert_eq!(id("2.0.0 Ok: queued as 4F2A31C0D2").as_deref(), Some("4F2A31C0D2"));
        assert_eq!(id("OK id=1tXyZ0-000000001Ab-2cDe").as_deref(), Some("1tXyZ0-000000001Ab-2cDe"));
        assert_eq!(id("2.0.0 57CC1a2b013 Message accepted for delivery").as_deref(), Some("57CC1a2b013"));
        assert_eq!(id("Ok 0102abc-000000").as_deref(), Some("0102abc-000000"));
        assert_eq!(id("Thank you, friend"), None);
        assert_eq!(id(""), None);
    }
}
