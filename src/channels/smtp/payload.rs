//! The payload of a mail, and what a caller may say in it. Everything refused here was refused before a byte left.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::channels::Unsupported;

/// Headers that are ours, the relay's or the receiver's. Compared without case; `content-`, `resent-`, `arc-` and
/// `x-settled-` are refused as prefixes.
const RESERVED: [&str; 22] = [
    "authentication-results",
    "bcc",
    "cc",
    "date",
    "delivered-to",
    "dkim-signature",
    "domainkey-signature",
    "envelope-to",
    "from",
    "idempotency-key",
    "message-id",
    "mime-version",
    "received",
    "received-spf",
    "reply-to",
    "return-path",
    "sender",
    "subject",
    "to",
    "apparently-to",
    "disposition-notification-to",
    "return-receipt-to",
];
const RESERVED_PREFIXES: [&str; 4] = ["content-", "resent-", "arc-", "x-settled-"];

/// What a caller may give. Unknown members are refused: `cc` and `bcc` would be further recipients, and one mail has one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    /// The one recipient, with or without display name.
    pub to: String,
    /// Plain, not encoded.
    pub subject: String,
    /// Plain text.
    #[serde(default)]
    pub text: Option<String>,
    /// HTML.
    #[serde(default)]
    pub html: Option<String>,
    /// Where answers go.
    #[serde(default)]
    pub reply_to: Option<String>,
    /// Display name of the sender.
    #[serde(default)]
    pub from_name: Option<String>,
    /// Further headers, plain.
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, String>,
    /// Files.
    #[serde(default)]
    pub attachments: Vec<Attachment>,
}

/// One file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Its name, without a path.
    pub filename: String,
    /// `application/pdf` and its like.
    pub content_type: String,
    /// Standard alphabet, padded.
    pub content_base64: String,
}

impl Payload {
    /// Reads and checks it.
    ///
    /// # Errors
    /// [`Unsupported`] with the member and the rule.
    pub fn read(text: &str) -> Result<Self, Unsupported> {
        // Its message can quote the payload, which must not reach a log; line and column are enough to find the place.
        let payload: Self = serde_json::from_str(text).map_err(|error| {
            let member = unknown_member(&error.to_string());
            refused(
                member.as_deref().unwrap_or(""),
                &format!("is no mail payload (line {}, column {})", error.line(), error.column()),
            )
        })?;
        one_line("/to", &payload.to)?;
        one_line("/subject", &payload.subject)?;
        if let Some(reply_to) = &payload.reply_to {
            one_line("/reply_to", reply_to)?;
        }
        if let Some(name) = &payload.from_name {
            one_line("/from_name", name)?;
            if name.len() > 256 {
                return Err(refused("/from_name", "must not be longer than 256 bytes"));
            }
        }
        for (name, value) in &payload.headers {
            header(name, value)?;
        }
        if payload.text.is_none() && payload.html.is_none() {
            return Err(refused("/text", "must be given where there is no html"));
        }
        for (member, text) in [("/text", &payload.text), ("/html", &payload.html)] {
            if text.as_deref().is_some_and(|text| text.contains('\0')) {
                return Err(refused(member, "must not hold NUL"));
            }
        }
        for (at, attachment) in payload.attachments.iter().enumerate() {
            attachment.check(at)?;
        }
        Ok(payload)
    }
}

impl Attachment {
    fn check(&self, at: usize) -> Result<(), Unsupported> {
        let field = format!("/attachments/{at}/filename");
        one_line(&field, &self.filename)?;
        if self.filename.is_empty() || self.filename.len() > 255 || self.filename.contains(['/', '\\', '"']) {
            return Err(refused(&field, "must be a file name of 1 to 255 bytes without slash, backslash or quote"));
        }
        let field = format!("/attachments/{at}/content_type");
        one_line(&field, &self.content_type)?;
        let lower = self.content_type.to_ascii_lowercase();
        if !self.content_type.is_ascii() || self.content_type.len() > 200 {
            return Err(refused(&field, "must be a media type of at most 200 ASCII characters"));
        }
        // RFC 2045 section 6.4: these two must not be encoded, and a file is.
        if lower.starts_with("multipart/") || lower.starts_with("message/") {
            return Err(refused(&field, "must not be multipart or message"));
        }
        Ok(())
    }

    /// The bytes.
    ///
    /// # Errors
    /// When it is no base64.
    pub fn decode(&self, at: usize) -> Result<Vec<u8>, Unsupported> {
        STANDARD
            .decode(&self.content_base64)
            .map_err(|_| refused(&format!("/attachments/{at}/content_base64"), "must be padded base64"))
    }
}

/// Makes the error of this channel.
pub fn refused(field: &str, rule: &str) -> Unsupported {
    Unsupported { field: field.to_owned(), rule: rule.to_owned() }
}

fn unknown_member(said: &str) -> Option<String> {
    let name = said.strip_prefix("unknown field `")?.split('`').next()?;
    let plain = name.len() <= 40 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    plain.then(|| format!("/{name}"))
}

/// No control characters: CR and LF would begin a header of their own.
fn one_line(field: &str, value: &str) -> Result<(), Unsupported> {
    if value.chars().any(char::is_control) {
        return Err(refused(field, "must not hold control characters"));
    }
    Ok(())
}

fn header(name: &str, value: &str) -> Result<(), Unsupported> {
    let shown: String = name.chars().filter(char::is_ascii_graphic).take(76).collect();
    let field = format!("/headers/{shown}");
    // ftext of RFC 5322 section 3.6.8; lettre would take CR and LF.
    if name.is_empty() || name.len() > 76 || !name.bytes().all(|b| b.is_ascii_graphic() && b != b':') {
        return Err(refused(&field, "must be a header name of 1 to 76 printable ASCII characters without colon"));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
        return Err(refused(&field, "is reserved"));
    }
    one_line(&field, value)
}
