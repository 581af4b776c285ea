//! What `settled verify` sends to a destination to see its guarantees hold. A matter of the file that `verify` reads: it is not
//! published, and changing it needs no new revision.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuildError,
    template::{Encode, JsonTemplate, Refused, Template, Variable},
};

/// `[destinations.canary]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// Its payload, as a caller would give it, `to` included; `{reference}` is filled inside strings.
    pub payload: Value,
    /// Its reference, with `{canary}` or `{digits}` in it, where `reference_pattern` wants a form of its own.
    #[serde(default = "plain")]
    pub reference: String,
}

fn plain() -> String {
    "{canary}".to_owned()
}

/// What may stand in braces of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Canary,
    Digits,
}

impl Variable for Name {
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        match (name, argument) {
            ("canary", None) => Ok(Self::Canary),
            ("digits", None) => Ok(Self::Digits),
            (_, _) => Err(format!("has an unknown variable {{{name}}}; there are {{canary}} and {{digits}}")),
        }
    }
}

/// What may stand in braces of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reference;

impl Variable for Reference {
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        match (name, argument) {
            ("reference", None) => Ok(Self),
            (_, _) => Err(format!("has an unknown variable {{{name}}}; there is {{reference}}")),
        }
    }
}

/// One canary, ready to be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Its reference.
    pub reference: String,
    /// Its payload, JSON text.
    pub payload: String,
}

impl Canary {
    /// Makes one. `date` is eight digits, `random` a number that no other canary of the day has, below 10^10.
    ///
    /// # Errors
    /// [`BuildError`] names the setting that cannot be used.
    pub fn fill(&self, date: &str, random: u64) -> Result<Filled, BuildError> {
        let (name, payload) = self.templates()?;
        let unfilled = |field: &'static str| move |error: Refused| BuildError::new(field, error.to_string());
        let value = |name: &Name| {
            Ok(match name {
                Name::Canary => format!("CANARY-{date}-{random:010}"),
                Name::Digits => format!("{date}{random:010}"),
            })
        };
        let reference = name.render(Encode::Verbatim, &value).map_err(unfilled("reference"))?;
        let payload = payload.render(&|_: &Reference| Ok(reference.clone())).map_err(unfilled("payload"))?.to_string();
        Ok(Filled { reference, payload })
    }

    /// To whom it goes, where the payload says so.
    pub fn recipient(&self) -> Option<&str> {
        self.payload.get("to").and_then(Value::as_str)
    }

    /// What is wrong with the declaration, if anything is.
    ///
    /// # Errors
    /// [`BuildError`] names the setting and the rule.
    pub fn check(&self) -> Result<(), BuildError> {
        let (name, _) = self.templates()?;
        if name.variables().next().is_none() {
            return Err(BuildError::new("reference", "must contain {canary} or {digits}: every canary needs its own"));
        }
        if !self.payload.is_object() {
            return Err(BuildError::new("payload", "must be a table"));
        }
        Ok(())
    }

    fn templates(&self) -> Result<(Template<Name>, JsonTemplate<Reference>), BuildError> {
        Ok((Template::parse(&self.reference, "reference")?, JsonTemplate::parse(&self.payload, "payload")?))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn canary(reference: &str) -> Canary {
        Canary {
            payload: json!({ "to": "c@x.test", "text": "is {reference} there?" }),
            reference: reference.to_owned(),
        }
    }

    #[test]
    fn its_reference_travels_in_its_payload_and_takes_the_form_that_a_destination_wants() {
        let filled = canary("{canary}").fill("20260301", 42).unwrap();
        assert_eq!(filled.reference, "CANARY-20260301-0000000042");
        assert!(filled.payload.contains("is CANARY-20260301-0000000042 there?"), "{}", filled.payload);
        assert_eq!(canary("ord-{digits}").fill("20260301", 42).unwrap().reference, "ord-202603010000000042");
        assert_eq!(canary("{canary}").recipient(), Some("c@x.test"));
    }

    #[test]
    fn one_that_could_name_something_of_the_business_is_refused() {
        assert_eq!(canary("INV-1").check().unwrap_err().field, "reference");
        assert_eq!(canary("{reference}").check().unwrap_err().field, "reference");
        let mut bare = canary("{canary}");
        bare.payload = json!("text");
        assert_eq!(bare.check().unwrap_err().field, "payload");
        assert!(canary("ord-{digits}").check().is_ok());
    }
}
