//! JSON with variables: values go into the parsed tree, never into its text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Encode, Refused, Template, Variable};
use crate::config::BuildError;

/// A JSON value with variables inside its strings. Values go into the parsed tree, so they cannot leave their string.
#[derive(Debug, Clone)]
pub enum JsonTemplate<V> {
    /// A string.
    Text(Template<V>),
    /// An array.
    List(Vec<Self>),
    /// An object; names are literal.
    Members(BTreeMap<String, Self>),
    /// A number, a truth value or null.
    Plain(Value),
}

impl<V: Variable> JsonTemplate<V> {
    /// Parses the value of the setting `field`.
    ///
    /// # Errors
    /// See [`Template::parse`].
    pub fn parse(value: &Value, field: &str) -> Result<Self, BuildError> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text, field)?),
            Value::Array(list) => {
                Self::List(list.iter().map(|each| Self::parse(each, field)).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => Self::Members(
                members
                    .iter()
                    .map(|(name, each)| Ok((name.clone(), Self::parse(each, &format!("{field}.{name}"))?)))
                    .collect::<Result<_, BuildError>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Plain(value.clone()),
        })
    }
}

impl<V> JsonTemplate<V> {
    /// The variables in it.
    pub fn variables(&self) -> Vec<&V> {
        match self {
            Self::Text(template) => template.variables().collect(),
            Self::List(list) => list.iter().flat_map(Self::variables).collect(),
            Self::Members(members) => members.values().flat_map(Self::variables).collect(),
            Self::Plain(_) => Vec::new(),
        }
    }

    /// The part that an RFC 6901 pointer names.
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |here, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match here {
                Self::Members(members) => members.get(&step),
                Self::List(list) => list.get(step.parse::<usize>().ok()?),
                Self::Text(_) | Self::Plain(_) => None,
            }
        })
    }

    /// Fills it.
    ///
    /// # Errors
    /// What `value` refuses.
    pub fn render(&self, value: &dyn Fn(&V) -> Result<String, Refused>) -> Result<Value, Refused> {
        Ok(match self {
            Self::Text(template) => Value::String(template.render(Encode::Verbatim, value)?),
            Self::List(list) => Value::Array(list.iter().map(|each| each.render(value)).collect::<Result<_, _>>()?),
            Self::Members(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, each)| Ok((name.clone(), each.render(value)?)))
                    .collect::<Result<_, Refused>>()?,
            ),
            Self::Plain(plain) => plain.clone(),
        })
    }
}
