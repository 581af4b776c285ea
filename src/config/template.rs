//! Templates in settings: `{name}` and `{name:argument}` inside URLs, query values, form fields and JSON bodies.
//!
//! Used by `look_up::http` and `channels::sms`. Must hold: variables are known at load, a value is encoded for the place it
//! stands in, a value never changes the host or the depth of a path, and an empty value builds nothing (an empty name in
//! a query means "everything" to many servers).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::BuildError;

mod json;
mod url;

pub use json::JsonTemplate;
pub use url::UrlTemplate;

/// Everything but RFC 3986 section 2.3 unreserved characters.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name that may stand in braces.
pub trait Variable: Sized {
    /// Reads the name and, after a colon, its argument.
    ///
    /// # Errors
    /// The rule that it breaks.
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String>;
}

/// A template could not be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The value of a variable is empty.
    #[error("{{{0}}} is empty, and an empty value would ask for everything")]
    Empty(&'static str),
    /// The value would be read as a step up or down a path.
    #[error("a value would change the path of the url")]
    Path,
}

/// Percent-encodes everything but unreserved characters.
pub fn percent(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// How a value is written into its surroundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encode {
    /// As it is: the surroundings are not text but a parsed value.
    Verbatim,
    /// Percent-encoded but for unreserved characters: path segments and query values.
    Percent,
}

impl Encode {
    fn push(self, into: &mut String, value: &str) {
        match self {
            Self::Verbatim => into.push_str(value),
            Self::Percent => into.push_str(&percent(value)),
        }
    }
}

/// A text with variables. `{{` and `}}` stand for a brace.
#[derive(Debug, Clone)]
pub struct Template<V> {
    parts: Vec<Part<V>>,
}

#[derive(Debug, Clone)]
enum Part<V> {
    Text(String),
    Variable(V),
}

impl<V: Variable> Template<V> {
    /// Parses the text of the setting `field`.
    ///
    /// # Errors
    /// An open brace, an unknown variable, a wrong argument.
    pub fn parse(text: &str, field: &str) -> Result<Self, BuildError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let Some((inside, after)) = (brace == "{").then(|| rest.split_once('}')).flatten() else {
                return Err(BuildError::new(field, "has a brace without its partner (write {{ or }} for a brace)"));
            };
            rest = after;
            let (name, argument) = match inside.split_once(':') {
                Some((name, argument)) => (name, Some(argument)),
                None => (inside, None),
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Variable(V::parse(name, argument).map_err(|rule| BuildError::new(field, rule))?));
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { parts })
    }
}

impl<V> Template<V> {
    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &V> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Variable(variable) => Some(variable),
        })
    }

    /// Fills it.
    ///
    /// # Errors
    /// What `value` refuses.
    pub fn render(&self, encode: Encode, value: &dyn Fn(&V) -> Result<String, Refused>) -> Result<String, Refused> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Variable(variable) => encode.push(&mut text, &value(variable)?),
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Clone)]
    struct Name;

    impl Variable for Name {
        fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
            if argument.is_none() && ["a", "b"].contains(&name) {
                Ok(Self)
            } else {
                Err(format!("has an unknown variable {{{name}}}"))
            }
        }
    }

    fn fill(a: &str) -> impl Fn(&Name) -> Result<String, Refused> + use<> {
        let a = a.to_owned();
        move |_| if a.is_empty() { Err(Refused::Empty("a")) } else { Ok(a.clone()) }
    }

    #[test]
    fn a_value_is_encoded_for_its_place() {
        let url = UrlTemplate::<Name>::parse("https://h.test/x/{a}/y?q='{a}'", "url").unwrap();
        assert_eq!(
            url.render(&fill("a/b?c&d e")).unwrap().as_str(),
            "https://h.test/x/a%2Fb%3Fc%26d%20e/y?q=%27a%2Fb%3Fc%26d%20e%27"
        );
        let body = JsonTemplate::<Name>::parse(&json!({"f": ["x{a}", 1, null]}), "json").unwrap();
        assert_eq!(body.render(&fill("\"}]")).unwrap(), json!({"f": ["x\"}]", 1, null]}));
    }

    #[test]
    fn a_value_cannot_leave_its_path_segment() {
        let url = UrlTemplate::<Name>::parse("https://h.test/x/{a}", "url").unwrap();
        assert_eq!(url.render(&fill("..")).unwrap_err(), Refused::Path);
        assert_eq!(url.render(&fill(".")).unwrap_err(), Refused::Path);
        assert_eq!(url.render(&fill("a..b")).unwrap().path(), "/x/a..b");
        assert_eq!(url.render(&fill("")).unwrap_err(), Refused::Empty("a"));
    }

    #[test]
    fn what_is_wrong_in_a_template_is_named_at_load() {
        for (text, words) in [
            ("ftp://h/", "http"),
            ("https://{a}.test/", "host"),
            ("https://u:p@h.test/", "auth"),
            ("https://h.test/{c}", "unknown variable {c}"),
            ("https://h.test/{a", "brace"),
            ("https://h.test/a}", "brace"),
            ("https://h.test/#x", "fragment"),
            ("https://h.test/a/../b", "path"),
        ] {
            let error = UrlTemplate::<Name>::parse(text, "url").unwrap_err();
            assert!(error.rule.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn doubled_braces_are_braces() {
        let template = Template::<Name>::parse("{{{a}}} {{}}", "x").unwrap();
        assert_eq!(template.render(Encode::Verbatim, &fill("1")).unwrap(), "{1} {}");
    }

    #[test]
    fn a_pointer_names_a_part() {
        let body = JsonTemplate::<Name>::parse(&json!({"m": [{"r/f": "{a}"}]}), "json").unwrap();
        assert_eq!(body.at("/m/0/r~1f").unwrap().variables().len(), 1);
        assert!(body.at("/m/1").is_none());
    }
}
