//! From an intent to one HTTP request, the same bytes every time.

use bytes::Bytes;
use http::{HeaderValue, header};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use super::settings::{Body, Field, Plan, check_size};
use crate::{
    channels::{Prepared, Unsupported, Wire, wire::http1::Request},
    config::template::{Encode, Refused},
    domain::{
        intent::Outgoing,
        mark::{self, Carried},
    },
};

/// The payload of an SMS. Nothing else is known, so nothing is dropped in silence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    #[serde(default)]
    to: Option<String>,
    text: String,
}

fn unsupported<T>(field: &str, rule: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported { field: field.to_owned(), rule: rule.into() })
}

/// E.164 in its normal form: `+`, a digit from 1 to 9, 7 to 14 more ASCII digits; nothing around or between them.
pub fn is_e164(number: &str) -> bool {
    number.strip_prefix('+').is_some_and(|digits| {
        (8..=15).contains(&digits.len()) && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Renders the request.
pub(super) fn prepare(plan: &Plan, outgoing: &Outgoing) -> Result<Prepared, Unsupported> {
    let payload: Payload = serde_json::from_str(&outgoing.payload).map_err(|error| Unsupported {
        // The words of the parser may quote the payload; its kind may not.
        field: "/".to_owned(),
        rule: format!("must be an object of to and text ({:?} error at column {})", error.classify(), error.column()),
    })?;
    if !is_e164(&outgoing.recipient) {
        return unsupported("/to", "must be E.164: + and 8 to 15 digits, the first not 0");
    }
    if payload.to.is_some_and(|to| to.trim_matches(['\t', '\n', '\r', ' ']) != outgoing.recipient) {
        return unsupported("/to", "must be the recipient of the intent");
    }
    let text = text(plan, outgoing, payload.text)?;
    let values = Values { plan, outgoing, text: &text };
    let refused = |refused: Refused| Unsupported { field: "sms".to_owned(), rule: refused.to_string() };

    let url = plan.url.render(&|field| values.of(*field)).map_err(refused)?;
    let (kind, body) = match &plan.body {
        Body::None => (None, Bytes::new()),
        Body::Json(template) => {
            let value = template.render(&|field| values.of(*field)).map_err(refused)?;
            (Some("application/json"), Bytes::from(value.to_string()))
        }
        Body::Form(fields) => {
            let mut form = form_urlencoded::Serializer::new(String::new());
            for (name, template) in fields {
                let value = template.render(Encode::Verbatim, &|field| values.of(*field)).map_err(refused)?;
                form.append_pair(name, &value);
            }
            (Some("application/x-www-form-urlencoded"), Bytes::from(form.finish()))
        }
    };
    let mut headers = plan.static_headers.clone();
    let mut digest = Sha256::new();
    for part in [plan.method.as_str().as_bytes(), url.as_str().as_bytes(), body.as_ref()] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    for (name, template) in &plan.headers {
        let value = template.render(Encode::Verbatim, &|field| values.of(*field)).map_err(refused)?;
        digest.update(name.as_str().as_bytes());
        digest.update((value.len() as u64).to_be_bytes());
        digest.update(value.as_bytes());
        let value = HeaderValue::from_str(&value).map_err(|_| Unsupported {
            field: format!("sms.headers.{name}"),
            rule: "must be visible ascii in one line".to_owned(),
        })?;
        headers.push((name.clone(), value));
    }
    if let Some(kind) = kind {
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static(kind)));
    }
    let request = Request { method: plan.method.clone(), url, headers, body };
    Ok(Prepared { digest: digest.finalize().into(), wire: Wire::Http(request) })
}

/// The text as it is sent: with the reference behind it where nothing else of the request carries a name of ours.
fn text(plan: &Plan, outgoing: &Outgoing, mut text: String) -> Result<String, Unsupported> {
    if text.trim().is_empty() {
        return unsupported("/text", "must not be empty");
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return unsupported("/text", "must not hold control characters other than line ends and tabs");
    }
    if !plan.marked {
        if mark::carried(&text, &outgoing.reference) != Carried::Yes {
            // Parentheses, since brackets count twice in the 7-bit alphabet.
            text.push_str(&format!(" ({})", outgoing.reference));
        }
        if mark::carried(&text, &outgoing.reference) != Carried::Yes {
            return unsupported("/text", "must carry the reference, since the provider has no field for it");
        }
    }
    check_size(&text, plan.max_segments).map_err(|rule| Unsupported { field: "/text".to_owned(), rule })?;
    Ok(text)
}

struct Values<'a> {
    plan: &'a Plan,
    outgoing: &'a Outgoing,
    text: &'a str,
}

impl Values<'_> {
    fn of(&self, field: Field) -> Result<String, Refused> {
        let (name, value) = match field {
            Field::To => ("to", self.outgoing.recipient.clone()),
            Field::Text => ("text", self.text.to_owned()),
            Field::From => ("from", self.plan.from.clone().unwrap_or_default()),
            Field::Key => ("key", self.outgoing.key.clone()),
            Field::Reference => ("reference", self.outgoing.reference.clone()),
            Field::Occurrence => ("occurrence", self.outgoing.occurrence.to_string()),
        };
        if value.is_empty() { Err(Refused::Empty(name)) } else { Ok(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_097_only_a_full_international_number_is_a_number() {
        for bad in [
            "",
            "+",
            "+0123456789",
            "+000000000",
            "+1",
            "+1234567",
            "+1234567890123456",
            "0049301234567",
            "49301234567",
            "+49 (0)30 123",
            "+١٢٣٤٥٦٧٨",
            "+49301234567\n",
            " +49301234567",
            "+4930-1234567",
        ] {
            assert!(!is_e164(bad), "{bad:?}");
        }
        assert!(is_e164("+123456789012345"));
        assert!(is_e164("+12345678"));
    }
}
