//! `[destinations.sms]` as written, and the plan that is made of it.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::Value;

use super::segments;
use crate::{
    channels::classify::ReplyRules,
    config::{
        BuildError,
        access::{Auth, Setting, headers},
        template::{JsonTemplate, Template, UrlTemplate, Variable},
    },
};

/// Path of the section, for errors.
const SECTION: &str = "sms";

/// The section.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    method: Verb,
    /// Absolute; variables in path and query.
    url: String,
    #[serde(default)]
    auth: Option<Auth>,
    /// Plain values may carry variables (`Idempotency-Key = "{key}"`).
    #[serde(default)]
    headers: BTreeMap<String, Setting>,
    /// Sender number or name, for `{from}`.
    #[serde(default)]
    from: Option<String>,
    /// JSON body.
    #[serde(default)]
    json: Option<Value>,
    /// Form body (`application/x-www-form-urlencoded`).
    #[serde(default)]
    form: Option<BTreeMap<String, String>>,
    /// The provider's field for a reference of ours: a JSON pointer into `json`, or the name of a field of `form`.
    #[serde(default)]
    reference_in: Option<String>,
    /// Largest number of billed parts.
    #[serde(default)]
    max_segments: Option<usize>,
    /// How replies are read; `sent_when` is required.
    #[serde(default)]
    reply: ReplyRules,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Verb {
    #[default]
    Post,
    Put,
    Get,
}

/// What may stand in braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Recipient, E.164.
    To,
    /// The text.
    Text,
    /// Sender from the settings.
    From,
    /// Our key.
    Key,
    /// The business reference, as the caller spelled it.
    Reference,
    /// Occurrence of the effect.
    Occurrence,
}

impl Field {
    /// It names the intent to whoever reads the message.
    fn marks(self) -> bool {
        match self {
            Self::Key | Self::Reference => true,
            Self::To | Self::Text | Self::From | Self::Occurrence => false,
        }
    }
}

impl Variable for Field {
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        match (name, argument) {
            ("to", None) => Ok(Self::To),
            ("text", None) => Ok(Self::Text),
            ("from", None) => Ok(Self::From),
            ("key", None) => Ok(Self::Key),
            ("reference", None) => Ok(Self::Reference),
            ("occurrence", None) => Ok(Self::Occurrence),
            ("to" | "text" | "from" | "key" | "reference" | "occurrence", Some(_)) => {
                Err(format!("must not give {{{name}}} an argument"))
            }
            (other, _) => {
                Err(format!("has an unknown variable {{{other}}} (known: to, text, from, key, reference, occurrence)"))
            }
        }
    }
}

/// A checked definition.
pub(super) struct Plan {
    pub method: Method,
    pub url: UrlTemplate<Field>,
    pub static_headers: Vec<(HeaderName, HeaderValue)>,
    pub headers: Vec<(HeaderName, Template<Field>)>,
    pub from: Option<String>,
    pub body: Body,
    /// The request carries key or reference outside the text.
    pub marked: bool,
    pub max_segments: Option<usize>,
    pub reply: ReplyRules,
}

/// How the body is made.
pub(super) enum Body {
    None,
    Json(JsonTemplate<Field>),
    Form(Vec<(String, Template<Field>)>),
}

fn fail<T>(field: &str, rule: &str) -> Result<T, BuildError> {
    Err(BuildError::new(format!("{SECTION}.{field}"), rule))
}

impl Plan {
    /// Checks the section.
    pub fn build(section: &Value) -> Result<Self, BuildError> {
        let settings: Settings =
            serde_json::from_value(section.clone()).map_err(|error| BuildError::unread(SECTION, &error))?;
        let url = UrlTemplate::parse(&settings.url, "sms.url")?;
        let body = body(&settings)?;
        let (static_headers, dynamic) = all_headers(&settings)?;
        let mut used: Vec<Field> = url.variables().copied().collect();
        used.extend(dynamic.iter().flat_map(|(_, template)| template.variables().copied()));
        match &body {
            Body::None => {}
            Body::Json(template) => used.extend(template.variables().into_iter().copied()),
            Body::Form(fields) => used.extend(fields.iter().flat_map(|(_, template)| template.variables().copied())),
        }
        if !used.contains(&Field::To) || !used.contains(&Field::Text) {
            return fail("json", "or form or url must carry {to} and {text}");
        }
        match &settings.from {
            Some(from) if from.trim().is_empty() || from.chars().any(char::is_control) => {
                return fail("from", "must be a number or name in one line");
            }
            None if used.contains(&Field::From) => return fail("from", "must be set, since {from} is used"),
            Some(_) | None => {}
        }
        check_reference(settings.reference_in.as_deref(), &body)?;
        if settings.max_segments == Some(0) {
            return fail("max_segments", "must be at least 1");
        }
        settings.reply.check("sms.reply")?;
        if settings.reply.sent_when.is_none() {
            // Providers answer 200 with an error inside; nobody may guess that it was sent.
            return fail("reply.sent_when", "must say which replies mean sent");
        }
        Ok(Self {
            method: match settings.method {
                Verb::Post => Method::POST,
                Verb::Put => Method::PUT,
                Verb::Get => Method::GET,
            },
            url,
            static_headers,
            headers: dynamic,
            from: settings.from,
            marked: used.iter().any(|field| field.marks()),
            body,
            max_segments: settings.max_segments,
            reply: settings.reply,
        })
    }
}

fn body(settings: &Settings) -> Result<Body, BuildError> {
    let body = match (&settings.json, &settings.form) {
        (Some(_), Some(_)) => return fail("form", "and json exclude each other"),
        (Some(json), None) => Body::Json(JsonTemplate::parse(json, "sms.json")?),
        (None, Some(form)) => Body::Form(
            form.iter()
                .map(|(name, text)| Ok((name.clone(), Template::parse(text, &format!("sms.form.{name}"))?)))
                .collect::<Result<_, BuildError>>()?,
        ),
        (None, None) => Body::None,
    };
    if settings.method == Verb::Get && !matches!(body, Body::None) {
        return fail("method", "= \"GET\" sends everything in the url");
    }
    Ok(body)
}

/// Headers with variables, apart from those without.
type Headers = (Vec<(HeaderName, HeaderValue)>, Vec<(HeaderName, Template<Field>)>);

fn all_headers(settings: &Settings) -> Result<Headers, BuildError> {
    let mut plain = settings.headers.clone();
    let mut dynamic = Vec::new();
    for (name, setting) in &settings.headers {
        let Setting::Plain(text) = setting else { continue };
        let template = Template::<Field>::parse(text, &format!("{SECTION}.headers.{name}"))?;
        if template.variables().next().is_none() {
            continue;
        }
        if template.variables().any(|field| *field == Field::Text) {
            return fail(&format!("headers.{name}"), "must not carry {text}");
        }
        // Checked as a name with a value that is always allowed.
        let checked = headers(None, &BTreeMap::from([(name.clone(), Setting::Plain("x".to_owned()))]), SECTION)?;
        dynamic.extend(checked.into_iter().map(|(name, _)| (name, template.clone())));
        plain.remove(name);
    }
    let mut fixed = headers(settings.auth.as_ref(), &plain, SECTION)?;
    if let Some((name, _)) = dynamic.iter().find(|(name, _)| fixed.iter().any(|(other, _)| other == name)) {
        return fail("headers", &format!("must not set {name} twice"));
    }
    if !fixed.iter().any(|(name, _)| name == header::ACCEPT) {
        fixed.push((header::ACCEPT, HeaderValue::from_static("application/json, */*;q=0.1")));
    }
    Ok((fixed, dynamic))
}

fn check_reference(reference_in: Option<&str>, body: &Body) -> Result<(), BuildError> {
    let Some(place) = reference_in else { return Ok(()) };
    let found: Vec<Field> = match body {
        Body::Json(template) => template.at(place).map(|part| part.variables().into_iter().copied().collect()),
        Body::Form(fields) => {
            fields.iter().find(|(name, _)| name == place).map(|(_, template)| template.variables().copied().collect())
        }
        Body::None => None,
    }
    .unwrap_or_default();
    if found.iter().any(|field| field.marks()) {
        return Ok(());
    }
    fail("reference_in", "must name a field of the body that carries {key} or {reference}")
}

/// Refuses a text that would cost more than the destination allows.
pub(super) fn check_size(text: &str, max_segments: Option<usize>) -> Result<(), String> {
    let size = segments::size(text);
    match max_segments {
        Some(max) if size.parts > max => Err(format!(
            "must fit into {max} segments, and needs {} ({:?}, {} units)",
            size.parts, size.encoding, size.units
        )),
        // 8-bit reference of concatenation (3GPP TS 23.040 section 9.2.3.24.1).
        _ if size.parts > 255 => Err(format!("must fit into 255 segments, and needs {}", size.parts)),
        Some(_) | None => Ok(()),
    }
}
