//! From an intent to the bytes of its mail. The same intent gives the same bytes, whenever and wherever it is rendered:
//! Date is when it was admitted, boundaries come from its key. Called by [`super::Smtp`] before every attempt.
//!
//! Built with lettre's message builder; what it would let through (lines over 998 octets, a lone CR in a 7bit body, CR
//! and LF in names) is refused or encoded here, and the result is checked octet by octet.

use base64::{Engine, engine::general_purpose::STANDARD};
use lettre::{
    Address, Message,
    message::{
        Body, Mailbox, MessageBuilder, MultiPart, SinglePart,
        header::{ContentDisposition, ContentTransferEncoding, ContentType, HeaderName, HeaderValue},
    },
};
use sha2::{Digest, Sha256};

use super::{
    Mail,
    payload::{Payload, refused},
    settings::{ReferenceIn, Settings},
};
use crate::{
    channels::Unsupported,
    domain::{intent::Outgoing, plain::is_odd},
};

/// Goes into the digest: a mail rendered by other rules is no replay.
const RENDERER: &str = "settled/mail/v1";

/// RFC 5322 section 2.1.1, without CRLF.
const LONGEST_LINE: usize = 998;

/// Above this a word of a header is encoded, since it could not be folded.
const LONGEST_WORD: usize = 60;

/// A rendered mail and the digest of what an equal attempt would carry.
pub struct Rendered {
    /// The mail, attempt mark included.
    pub mail: Mail,
    /// SHA-256 over renderer, envelope and bytes without the attempt mark.
    pub digest: [u8; 32],
}

/// Renders `outgoing`. `mark` adds `X-Settled-Attempt`; a relay that replays must see the same bytes each time.
///
/// # Errors
/// [`Unsupported`] names the member of the payload and the rule.
pub fn render(settings: &Settings, sender: &Address, outgoing: &Outgoing, mark: bool) -> Result<Rendered, Unsupported> {
    let payload = Payload::read(&outgoing.payload)?;
    let to = recipient(&payload, outgoing)?;
    if settings.reference_in == ReferenceIn::Subject && !names(&payload.subject, &outgoing.reference) {
        return Err(refused("/subject", "must name the reference"));
    }
    let builder = headers(settings, sender, outgoing, &payload, to)?;
    let message = content(builder, &payload, &outgoing.key)?;
    let mut bytes = message.formatted();
    if !bytes.ends_with(b"\r\n") {
        bytes.extend_from_slice(b"\r\n");
    }
    check_octets(&bytes)?;
    check_marks(&bytes, settings, sender, outgoing)?;

    let mut digest = Sha256::new();
    for part in
        [RENDERER, sender.as_ref(), &outgoing.recipient].map(str::as_bytes).into_iter().chain([bytes.as_slice()])
    {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    if mark {
        bytes.splice(0..0, format!("X-Settled-Attempt: {}\r\n", outgoing.attempt).into_bytes());
    }
    let mail = Mail { from: sender.to_string(), to: outgoing.recipient.clone(), bytes };
    Ok(Rendered { mail, digest: digest.finalize().into() })
}

/// Local part as given, domain in lower case: the form in which the ledger keeps a recipient.
pub fn normal_form(address: &Address) -> String {
    format!("{}@{}", address.user(), address.domain().to_ascii_lowercase())
}

fn recipient(payload: &Payload, outgoing: &Outgoing) -> Result<Mailbox, Unsupported> {
    let to: Mailbox = payload.to.trim().parse().map_err(|_| refused("/to", "must be one mail address"))?;
    if !to.email.domain().is_ascii() {
        return Err(refused("/to", "must give the domain as A-label"));
    }
    if to.email.user().chars().any(invisible) {
        return Err(refused(
            "/to",
            "must not hold characters in the local part that are invisible or turn text around",
        ));
    }
    // The effect was admitted for this recipient and no other.
    if normal_form(&to.email) != outgoing.recipient {
        return Err(refused("/to", "must be the recipient that the intent was admitted for"));
    }
    Ok(to)
}

/// Two addresses that look alike must not be two people.
fn invisible(c: char) -> bool {
    is_odd(c)
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{2064}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The reference as a whole word: INV-229 is not named by INV-2291.
fn names(subject: &str, reference: &str) -> bool {
    let (subject, reference) = (subject.to_ascii_lowercase(), reference.to_ascii_lowercase());
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !reference.is_empty()
        && subject.match_indices(&reference).any(|(at, found)| {
            let before = subject.get(..at).and_then(|text| text.chars().next_back());
            let after = subject.get(at + found.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
        })
}

fn headers(
    settings: &Settings,
    sender: &Address,
    outgoing: &Outgoing,
    payload: &Payload,
    to: Mailbox,
) -> Result<MessageBuilder, Unsupported> {
    let name = payload.from_name.clone().or_else(|| settings.from_name.clone());
    let from = Mailbox::new(name.filter(|name| !name.trim().is_empty()), sender.clone());
    // A token that goes on the wire as it is must need no encoding.
    let plain = |value: &str| !value.is_empty() && value.len() <= 200 && value.bytes().all(|b| b.is_ascii_graphic());
    if !plain(&outgoing.key) || outgoing.key.contains(['<', '>', '@', '"', '(', ')', '\\', ',', ';', ':', '[', ']']) {
        return Err(refused("key", "must be usable as the local part of a Message-ID"));
    }
    if !plain(&outgoing.reference) {
        return Err(refused("reference", "must be printable ASCII without spaces"));
    }
    let message_id = format!("<{}@{}>", outgoing.key, settings.id_domain(sender));
    let mut builder = Message::builder()
        .date(outgoing.created_at.into())
        .from(from)
        .to(to)
        .raw_header(ours("Message-ID", message_id))
        .raw_header(ours("X-Settled-Key", outgoing.key.clone()))
        .raw_header(ours("X-Settled-Reference", outgoing.reference.clone()));
    if let Some(reply_to) = &payload.reply_to {
        let mailbox: Mailbox = reply_to.trim().parse().map_err(|_| refused("/reply_to", "must be one mail address"))?;
        builder = builder.reply_to(mailbox);
    }
    builder = builder.raw_header(unstructured(HeaderName::new_from_ascii_str("Subject"), &payload.subject));
    for (name, value) in &payload.headers {
        let name = HeaderName::new_from_ascii(name.clone())
            .map_err(|_| refused("/headers", "must have header names of printable ASCII"))?;
        builder = builder.raw_header(unstructured(name, value));
    }
    Ok(builder)
}

/// One of our own marks: short, ASCII, never folded, so that every reader finds it on one line.
fn ours(name: &'static str, value: String) -> HeaderValue {
    HeaderValue::dangerous_new_pre_encoded(HeaderName::new_from_ascii_str(name), value.clone(), value)
}

/// Plain text as a header value. lettre folds and encodes well, but leaves a long word on one line and passes on what
/// already looks encoded.
fn unstructured(name: HeaderName, value: &str) -> HeaderValue {
    if value.split(' ').all(|word| word.len() <= LONGEST_WORD) && !value.contains("=?") {
        return HeaderValue::new(name, value.to_owned());
    }
    let mut chunks = vec![String::new()];
    for c in value.chars() {
        if chunks.last().is_none_or(|chunk| chunk.len() + c.len_utf8() > 39) {
            chunks.push(String::new());
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(c);
        }
    }
    let words: Vec<String> = chunks.iter().map(|chunk| format!("=?utf-8?b?{}?=", STANDARD.encode(chunk))).collect();
    // The first word moves to a line of its own where the name is long.
    let start = if name.len() > 12 { "\r\n " } else { "" };
    let encoded = format!("{start}{}", words.join("\r\n "));
    HeaderValue::dangerous_new_pre_encoded(name, value.to_owned(), encoded)
}

fn content(builder: MessageBuilder, payload: &Payload, key: &str) -> Result<Message, Unsupported> {
    let built = |message: Result<Message, lettre::error::Error>| {
        message.map_err(|error| refused("", &format!("does not make a mail: {error}")))
    };
    let text = payload.text.as_deref().map(|text| part(ContentType::TEXT_PLAIN, text));
    let html = payload.html.as_deref().map(|html| part(ContentType::TEXT_HTML, html));
    // `=_` cannot stand in quoted-printable or base64, and the key is not known to who wrote the text.
    let (outer, inner) = (format!("=_{key}_m"), format!("=_{key}_a"));
    let alternative = |text: SinglePart, html: SinglePart| {
        MultiPart::alternative().boundary(inner.clone()).singlepart(text).singlepart(html)
    };
    if payload.attachments.is_empty() {
        return match (text, html) {
            (Some(text), Some(html)) => built(builder.multipart(alternative(text, html))),
            (Some(only), None) | (None, Some(only)) => built(builder.singlepart(only)),
            (None, None) => Err(refused("/text", "must be given where there is no html")),
        };
    }
    let mixed = MultiPart::mixed().boundary(outer);
    let mut mixed = match (text, html) {
        (Some(text), Some(html)) => mixed.multipart(alternative(text, html)),
        (Some(only), None) | (None, Some(only)) => mixed.singlepart(only),
        (None, None) => return Err(refused("/text", "must be given where there is no html")),
    };
    for (at, attachment) in payload.attachments.iter().enumerate() {
        let content_type = ContentType::parse(&attachment.content_type)
            .map_err(|_| refused(&format!("/attachments/{at}/content_type"), "must be a media type"))?;
        mixed = mixed.singlepart(
            SinglePart::builder()
                .header(content_type)
                .header(ContentDisposition::attachment(&attachment.filename))
                .header(ContentTransferEncoding::Base64)
                .body(attachment.decode(at)?),
        );
    }
    built(builder.multipart(mixed))
}

/// A text part. LF becomes CRLF; a lone CR survives in base64, where it cannot be taken for a line end. The last line end
/// is left to the format, which adds one.
fn part(content_type: ContentType, text: &str) -> SinglePart {
    let text = text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text);
    // Done here and in one go: lettre inserts every CR by moving the rest of the text.
    let mut lines = String::with_capacity(text.len() + text.len() / 32);
    for line in text.split_inclusive('\n') {
        match line.strip_suffix('\n') {
            Some(line) => {
                lines.push_str(line.strip_suffix('\r').unwrap_or(line));
                lines.push_str("\r\n");
            }
            None => lines.push_str(line),
        }
    }
    let lone_cr =
        lines.as_bytes().iter().enumerate().any(|(at, b)| *b == b'\r' && lines.as_bytes().get(at + 1) != Some(&b'\n'));
    let builder = SinglePart::builder().header(content_type);
    if lone_cr {
        return builder.header(ContentTransferEncoding::Base64).body(lines);
    }
    builder.body(Body::new(lines))
}

/// What no relay may have to guess: CR and LF only as CRLF, no NUL, no line over the limit.
fn check_octets(bytes: &[u8]) -> Result<(), Unsupported> {
    let mut line = 0_usize;
    let mut previous = 0_u8;
    for &byte in bytes {
        let bad = match byte {
            0 => Some("holds NUL"),
            b'\n' if previous != b'\r' => Some("holds a bare LF"),
            _ if previous == b'\r' && byte != b'\n' => Some("holds a bare CR"),
            _ => None,
        };
        if let Some(rule) = bad {
            return Err(refused("", &format!("does not make a mail: it {rule}")));
        }
        if !matches!(byte, b'\r' | b'\n') {
            line += 1;
        } else {
            line = 0;
        }
        if line > LONGEST_LINE {
            return Err(refused("", "does not make a mail: a line is longer than 998 octets"));
        }
        previous = byte;
    }
    Ok(())
}

/// A mail that does not carry its reference and key is not sent: nobody could ask for it.
fn check_marks(bytes: &[u8], settings: &Settings, sender: &Address, outgoing: &Outgoing) -> Result<(), Unsupported> {
    let (headers, _) =
        mailparse::parse_headers(bytes).map_err(|_| refused("", "does not make a mail: its headers cannot be read"))?;
    let only = |name: &str, wanted: &str| {
        let mut values = headers
            .iter()
            .filter(|header| header.get_key_ref().eq_ignore_ascii_case(name))
            .map(mailparse::MailHeader::get_value);
        values.next().as_deref() == Some(wanted) && values.next().is_none()
    };
    let message_id = format!("<{}@{}>", outgoing.key, settings.id_domain(sender));
    if only("X-Settled-Reference", &outgoing.reference)
        && only("X-Settled-Key", &outgoing.key)
        && only("Message-ID", &message_id)
    {
        Ok(())
    } else {
        Err(refused("reference", "must stand in the mail, once"))
    }
}
