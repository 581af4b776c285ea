//! How an HTTP API lets us in: static headers and credentials, in settings of `look_up::http` and `channels::sms`.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{BuildError, secret::SecretRef};

/// A text that stands in the settings, or a reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// The text itself.
    Plain(String),
    /// `{ file = … }` or `{ env = … }`.
    Secret(SecretRef),
}

/// Credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Auth {
    /// RFC 7617.
    Basic {
        /// User name, without a colon.
        user: String,
        /// Its password.
        password: SecretRef,
    },
    /// RFC 6750.
    Bearer(SecretRef),
    /// A header of the API's own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: SecretRef,
    },
}

/// Headers that the sender sets itself or that change how a message is framed.
const RESERVED: [&str; 14] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "accept-encoding",
];

/// Loads a secret for the setting `field`.
///
/// # Errors
/// When it is missing, unreadable or empty.
pub fn load(secret: &SecretRef, field: &str) -> Result<SecretString, BuildError> {
    secret.load().map_err(|error| BuildError::new(field, format!("must name a readable secret: {error}")))
}

/// Static headers and credentials as they go on the wire; values from secrets are marked sensitive.
/// `section` is the path of the settings, such as `look_up.http`.
///
/// # Errors
/// A header that is not allowed, is no header, or whose secret cannot be read.
pub fn headers(
    auth: Option<&Auth>,
    headers: &BTreeMap<String, Setting>,
    section: &str,
) -> Result<Vec<(HeaderName, HeaderValue)>, BuildError> {
    let mut all = Vec::new();
    for (name, setting) in headers {
        let field = format!("{section}.headers.{name}");
        let name = header_name(name, &field)?;
        all.push(match setting {
            Setting::Plain(text) => (name, header_value(text, &field)?),
            Setting::Secret(secret) => (name, sensitive(load(secret, &field)?.expose_secret(), &field)?),
        });
    }
    let field = format!("{section}.auth");
    match auth {
        None => {}
        Some(Auth::Basic { user, password }) => {
            if user.contains(':') {
                return Err(BuildError::new(field, "must not have a colon in the user name"));
            }
            let password = load(password, &field)?;
            let pair = STANDARD.encode(format!("{user}:{}", password.expose_secret()));
            all.push((header::AUTHORIZATION, sensitive(&format!("Basic {pair}"), &field)?));
        }
        Some(Auth::Bearer(token)) => {
            let token = load(token, &field)?;
            all.push((header::AUTHORIZATION, sensitive(&format!("Bearer {}", token.expose_secret()), &field)?));
        }
        Some(Auth::Header { name, value }) => {
            let value = load(value, &field)?;
            all.push((header_name(name, &field)?, sensitive(value.expose_secret(), &field)?));
        }
    }
    let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(BuildError::new(format!("{section}.headers"), format!("must not set {} twice", twice[0])));
    }
    Ok(all)
}

fn header_name(text: &str, field: &str) -> Result<HeaderName, BuildError> {
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| BuildError::new(field, "must be a header name (RFC 9110 token)"))?;
    if RESERVED.contains(&name.as_str()) {
        return Err(BuildError::new(field, format!("must not set {name}: it is set by the sender")));
    }
    Ok(name)
}

fn header_value(text: &str, field: &str) -> Result<HeaderValue, BuildError> {
    HeaderValue::from_str(text).map_err(|_| BuildError::new(field, "must be visible ascii in one line"))
}

fn sensitive(text: &str, field: &str) -> Result<HeaderValue, BuildError> {
    let mut value = header_value(text, field)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn credentials_become_one_sensitive_header() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "s3cret").unwrap();
        let password = SecretRef::File(file.path().to_owned());
        let basic = Auth::Basic { user: "u".to_owned(), password: password.clone() };
        let all = headers(Some(&basic), &BTreeMap::new(), "x").unwrap();
        assert_eq!(all[0].1.to_str().unwrap(), "Basic dTpzM2NyZXQ=");
        assert!(all[0].1.is_sensitive());
        let all = headers(Some(&Auth::Bearer(password)), &BTreeMap::new(), "x").unwrap();
        assert_eq!(all[0].1.to_str().unwrap(), "Bearer s3cret");
    }

    #[test]
    fn a_header_that_frames_the_message_is_refused() {
        for name in ["Host", "content-length", "Transfer-Encoding", "a b", ""] {
            let map = BTreeMap::from([(name.to_owned(), Setting::Plain("x".to_owned()))]);
            headers(None, &map, "x").unwrap_err();
        }
        let map = BTreeMap::from([("x-a".to_owned(), Setting::Plain("a\r\nb: c".to_owned()))]);
        headers(None, &map, "x").unwrap_err();
    }

    #[test]
    fn a_missing_secret_names_its_setting() {
        let map = BTreeMap::from([("x-a".to_owned(), Setting::Secret(SecretRef::File("/nonexistent/secret".into())))]);
        assert_eq!(headers(None, &map, "sms").unwrap_err().field, "sms.headers.x-a");
    }
}
