//! Which channel speaks to a destination, and what makes it this destination. One line for each adapter.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Channel, sms::Sms};
use crate::{
    config::{BuildError, destination::Destination},
    domain::intent::ChannelKind,
};

/// Builds the channel of a destination.
///
/// # Errors
/// [`BuildError`] names the setting and the rule.
pub fn build(destination: &Destination) -> Result<Arc<dyn Channel>, BuildError> {
    Ok(match destination.channel {
        ChannelKind::Webhook => Arc::new(super::webhook::Webhook::build(destination)?),
        ChannelKind::Smtp => Arc::new(super::smtp::Smtp::build(destination)?),
        ChannelKind::Sms => Arc::new(Sms::build(destination)?),
    })
}

/// Members of a channel's section that say nothing about where it leads: a secret that is replaced by another, kept
/// connections.
const TUNABLES: [&str; 3] = ["signing_secrets", "keep_for", "keep_uses"];

/// The generation: what makes this destination the downstream that it is. 32 lower-case hex digits of the SHA-256 over the
/// canonical JSON of channel, its section, and kind and section of the look-up. Limits, time-outs and policies may change
/// without making it another one.
pub fn generation(destination: &Destination) -> String {
    let mut section = match destination.channel {
        ChannelKind::Webhook => destination.webhook.clone(),
        ChannelKind::Smtp => destination.smtp.clone(),
        ChannelKind::Sms => destination.sms.clone(),
    };
    if let Some(Value::Object(members)) = &mut section {
        for tunable in TUNABLES {
            members.remove(tunable);
        }
    }
    let look_up = destination.look_up.as_ref().map(|look_up| {
        use crate::config::destination::LookUpKind;
        match look_up.kind {
            LookUpKind::Http => json!({ "kind": "http", "section": look_up.http }),
            LookUpKind::Imap => json!({ "kind": "imap", "section": look_up.imap }),
            LookUpKind::Command => json!({ "kind": "command", "section": look_up.command }),
        }
    });
    let whole = json!({ "channel": destination.channel.as_str(), "section": section, "look_up": look_up });
    let mut text = String::new();
    canonical(&whole, &mut text);
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// JSON with members sorted by name, whatever order the map keeps.
fn canonical(value: &Value, into: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => into.push_str(&value.to_string()),
        Value::Array(list) => {
            into.push('[');
            for (i, each) in list.iter().enumerate() {
                if i > 0 {
                    into.push(',');
                }
                canonical(each, into);
            }
            into.push(']');
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            into.push('{');
            for (i, name) in names.into_iter().enumerate() {
                if i > 0 {
                    into.push(',');
                }
                into.push_str(&Value::from(name.as_str()).to_string());
                into.push(':');
                canonical(&members[name], into);
            }
            into.push('}');
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        generation(&serde_json::from_str::<Destination>(text).unwrap())
    }

    #[test]
    fn the_generation_is_about_where_and_who_and_nothing_else() {
        let one = of(r#"{"name":"a","channel":"sms","sms":{"url":"https://h.test/","from":"A"}}"#);
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        // Order of members, tunables, policies and the name of the destination.
        let same = r#"{"name":"b","channel":"sms","sms":{"from":"A","url":"https://h.test/"},
            "limits":{"attempts":9},"timeouts":{"reply":"9s"},"in_doubt":"person"}"#;
        assert_eq!(one, of(same));
        for other in [
            r#"{"name":"a","channel":"sms","sms":{"url":"https://i.test/","from":"A"}}"#,
            r#"{"name":"a","channel":"sms","sms":{"url":"https://h.test/","from":"B"}}"#,
            r#"{"name":"a","channel":"webhook","webhook":{"url":"https://h.test/","from":"A"}}"#,
            r#"{"name":"a","channel":"sms","sms":{"url":"https://h.test/","from":"A"},
                "look_up":{"kind":"http","lag":"1s","horizon":"1d","http":{"url":"x"}}}"#,
        ] {
            assert_ne!(one, of(other), "{other}");
        }
    }

    #[test]
    fn tunables_of_the_look_up_keep_the_generation() {
        let with = |lag: &str| {
            of(&format!(
                r#"{{"name":"a","channel":"sms","sms":{{}},
                    "look_up":{{"kind":"http","lag":"{lag}","horizon":"1d","http":{{"url":"x"}}}}}}"#
            ))
        };
        assert_eq!(with("1s"), with("1m"));
    }
}
