//! Texts: settings, payloads, templates, single header fields.

use std::{sync::OnceLock, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use settled::{
    channels::{
        self, Channel, Wire,
        classify::{Unit, retry_after},
    },
    config::{
        destination::Destination,
        load::parse_text,
        rules,
        template::{JsonTemplate, Refused, UrlTemplate, Variable},
    },
    domain::{
        intent::Outgoing,
        mark::{Carried, carried},
        plain::{is_odd, plain},
    },
};
use uuid::Uuid;

use super::{KEY, REFERENCE, holds, wire::turns};

/// Seconds after some time.
pub fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_600_000, 0).unwrap() + TimeDelta::seconds(seconds)
}

/// An intent with a payload.
pub fn outgoing(payload: String, recipient: &str) -> Outgoing {
    Outgoing {
        intent_id: Uuid::from_u128(1),
        tenant: "acme".to_owned(),
        destination: "d".to_owned(),
        key: KEY.to_owned(),
        reference: REFERENCE.to_owned(),
        occurrence: 1,
        recipient: recipient.to_owned(),
        attempt: 1,
        earlier_bytes: false,
        created_at: at(0),
        payload,
    }
}

/// A configuration file, and after a turn `NAME=value` lines of the environment.
pub fn settings(bytes: &[u8]) -> &'static str {
    let parts = turns(bytes);
    let text = |at: usize| String::from_utf8_lossy(parts.get(at).map_or(&[][..], Vec::as_slice)).into_owned();
    let environment: Vec<(String, String)> = text(1)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let read = || parse_text("settled.toml", &text(0), environment.clone().into_iter());
    let Ok(settings) = read() else { return "refused" };
    let broken = rules::broken(&settings, "settled.toml");
    assert_eq!(rules::broken(&read().expect("it was read before"), "settled.toml"), broken, "read twice, two meanings");
    for destination in &settings.destinations {
        // What is published and read back by another replica is the same downstream.
        let published = serde_json::to_value(destination).expect("it can be published");
        let again: Destination = serde_json::from_value(published.clone()).expect("it can be read back");
        assert_eq!(serde_json::to_value(&again).expect("it can be published"), published);
        assert_eq!(channels::registry::generation(&again), channels::registry::generation(destination));
    }
    if broken.is_empty() { "taken" } else { "broken" }
}

/// A payload for each channel.
pub fn payload(bytes: &[u8]) -> &'static str {
    let mut word = "refused";
    let text = String::from_utf8_lossy(bytes).into_owned();
    for (channel, recipient) in everyone().iter().zip(["", "ap@acme.test", "+4915112345678"]) {
        let outgoing = outgoing(text.clone(), recipient);
        let Ok(prepared) = channel.prepare(&outgoing) else { continue };
        let again = channel.prepare(&outgoing).expect("it was rendered before");
        assert_eq!(prepared.digest, again.digest, "rendered twice, two messages");
        let (named, carries) = match &prepared.wire {
            Wire::Http(request) => {
                let headers: Vec<u8> =
                    request.headers.iter().flat_map(|(_, value)| value.as_bytes().to_vec()).collect();
                (
                    holds(&headers, REFERENCE) || holds(&request.body, REFERENCE),
                    holds(&headers, KEY) || holds(&request.body, KEY),
                )
            }
            Wire::Mail(mail) => {
                assert_eq!(mail.to, recipient, "one mail, one envelope recipient");
                assert!(!mail.bytes.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r'), "a bare line feed");
                (holds(&mail.bytes, REFERENCE), holds(&mail.bytes, KEY))
            }
        };
        assert!(named && carries, "rendered without its reference or key");
        word = "rendered";
    }
    word
}

fn everyone() -> &'static [std::sync::Arc<dyn Channel>] {
    static CHANNELS: OnceLock<Vec<std::sync::Arc<dyn Channel>>> = OnceLock::new();
    CHANNELS.get_or_init(|| {
        let build = |value: Value| {
            channels::registry::build(&serde_json::from_value::<Destination>(value).unwrap()).unwrap()
        };
        let sms = json!({"url": "https://sms.test/messages", "json": {"to": "{to}", "text": "{text}", "ref": "{key}"},
            "headers": {"settled-reference": "{reference}"}, "reference_in": "/ref",
            "reply": {"sent_when": {"status": [201]}}});
        vec![
            build(json!({"name": "hook", "channel": "webhook", "webhook": {"url": "https://hook.test/"}})),
            build(json!({"name": "mail", "channel": "smtp", "smtp": {"host": "relay.test", "from": "billing@example.test"}})),
            build(json!({"name": "texts", "channel": "sms", "sms": sms})),
        ]
    })
}

/// A variable that takes any name.
struct Any;

impl Variable for Any {
    fn parse(name: &str, _argument: Option<&str>) -> Result<Self, String> {
        if name.is_empty() { Err("must have a name".to_owned()) } else { Ok(Self) }
    }
}

/// A template for a URL, one for JSON, and a value for all variables.
pub fn templates(bytes: &[u8]) -> &'static str {
    let mut word = "refused";
    let parts = turns(bytes);
    let text = |at: usize| String::from_utf8_lossy(parts.get(at).map_or(&[][..], Vec::as_slice)).into_owned();
    let (url, body, value) = (text(0), text(1), text(2));
    let fill = |with: &str| {
        let with = with.to_owned();
        move |_: &Any| -> Result<String, Refused> {
            if with.is_empty() { Err(Refused::Empty("x")) } else { Ok(with.clone()) }
        }
    };
    if let Ok(template) = UrlTemplate::<Any>::parse(&url, "url") {
        let plain = template.render(&fill("x")).expect("a template that was taken can be filled");
        if let Ok(filled) = template.render(&fill(&value)) {
            assert_eq!(filled.origin(), plain.origin(), "a value changed the host");
            let depth = |url: &url::Url| url.path_segments().map(Iterator::count);
            assert_eq!(depth(&filled), depth(&plain), "a value changed the depth of the path");
            word = "filled";
            assert_eq!(filled.fragment(), None);
            let names = |url: &url::Url| url.query_pairs().count();
            assert_eq!(names(&filled), names(&plain), "a value added to the query");
        }
    }
    if let Ok(json) = serde_json::from_str::<Value>(&body)
        && let Ok(template) = JsonTemplate::<Any>::parse(&json, "json")
        && let Ok(filled) = template.render(&fill(&value))
    {
        assert_eq!(shape(&filled), shape(&json), "a value changed what is around it");
        word = "filled";
    }
    word
}

/// A value without its texts.
fn shape(value: &Value) -> Value {
    match value {
        Value::String(_) => json!("text"),
        Value::Array(list) => list.iter().map(shape).collect(),
        Value::Object(members) => members.iter().map(|(name, each)| (name.clone(), shape(each))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Values of Retry-After, a turn each; and the same text as words for people, and as something that may carry a name.
pub fn headers(bytes: &[u8]) -> &'static str {
    let mut word = "no_wait";
    const CAP: u64 = 3600;
    let mut headers = HeaderMap::new();
    for turn in turns(bytes) {
        if let Ok(value) = HeaderValue::from_bytes(&turn) {
            headers.append(header::RETRY_AFTER, value);
        }
    }
    for now in [0, 784_111_687, 1_772_600_000, u64::MAX] {
        if let Some(wait) = retry_after(&headers, Unit::Seconds, now, Duration::from_secs(CAP)) {
            assert!((1..=CAP).contains(&wait), "a wait of {wait} s");
            assert_eq!(headers.len(), 1, "a wait by two values");
            word = "wait";
        }
    }
    let text = String::from_utf8_lossy(bytes);
    assert!(!plain(&text).contains(is_odd));
    if carried(&text, REFERENCE) == Carried::Yes {
        assert!(text.to_ascii_lowercase().contains(REFERENCE), "carried, and it does not stand there");
    }
    word
}
