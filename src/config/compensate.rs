//! A declared counter-action: what undoes an effect that may have happened. It becomes an intent of its own, after a person
//! agrees. `config::rules` checks the declaration at load, `engine::resolution` fills it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BuildError,
    template::{Encode, JsonTemplate, Refused, Template, Variable},
};

/// `[destinations.compensate]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Compensate {
    /// Where the counter-action goes; another destination.
    pub destination: String,
    /// Its reference, with `{reference}` in it: one counter-action for one effect.
    pub reference: String,
    /// Its payload; `{reference}`, `{occurrence}` and `{key}` are filled inside strings.
    pub payload: Value,
    /// What it does, for the person who agrees.
    pub reason: String,
}

/// What may stand in braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Reference,
    Occurrence,
    Key,
}

impl Variable for Mark {
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        match (name, argument) {
            ("reference", None) => Ok(Self::Reference),
            ("occurrence", None) => Ok(Self::Occurrence),
            ("key", None) => Ok(Self::Key),
            (_, _) => {
                Err(format!("has an unknown variable {{{name}}}; there are {{reference}}, {{occurrence}} and {{key}}"))
            }
        }
    }
}

/// The counter-action of one intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Its reference.
    pub reference: String,
    /// Its payload, JSON text.
    pub payload: String,
}

impl Compensate {
    /// Fills the declaration with the marks of the intent that may have happened.
    ///
    /// # Errors
    /// [`BuildError`] names the setting that cannot be used.
    pub fn fill(&self, reference: &str, occurrence: i32, key: &str) -> Result<Filled, BuildError> {
        let (name, payload) = self.templates()?;
        let value = |mark: &Mark| match mark {
            Mark::Reference => Ok(reference.to_owned()),
            Mark::Occurrence => Ok(occurrence.to_string()),
            Mark::Key if key.is_empty() => Err(Refused::Empty("key")),
            Mark::Key => Ok(key.to_owned()),
        };
        let unfilled = |field: &'static str| move |error: Refused| BuildError::new(field, error.to_string());
        Ok(Filled {
            reference: name.render(Encode::Verbatim, &value).map_err(unfilled("reference"))?,
            payload: payload.render(&value).map_err(unfilled("payload"))?.to_string(),
        })
    }

    /// What is wrong with the declaration, if anything is.
    ///
    /// # Errors
    /// [`BuildError`] names the setting and the rule.
    pub fn check(&self) -> Result<(), BuildError> {
        let (name, _) = self.templates()?;
        if !name.variables().any(|mark| *mark == Mark::Reference) {
            return Err(BuildError::new(
                "reference",
                "must contain {reference}: every effect needs a counter-action of its own",
            ));
        }
        if !self.payload.is_object() {
            return Err(BuildError::new("payload", "must be a table"));
        }
        if self.reason.trim().is_empty() {
            return Err(BuildError::new("reason", "must say what it does"));
        }
        Ok(())
    }

    fn templates(&self) -> Result<(Template<Mark>, JsonTemplate<Mark>), BuildError> {
        Ok((Template::parse(&self.reference, "reference")?, JsonTemplate::parse(&self.payload, "payload")?))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn refund() -> Compensate {
        Compensate {
            destination: "refunds".to_owned(),
            reference: "UNDO-{reference}".to_owned(),
            payload: json!({ "undo": "{reference} #{occurrence}", "key": "{key}", "amount": 5 }),
            reason: "asks for the money back".to_owned(),
        }
    }

    #[test]
    fn the_marks_of_the_intent_are_filled_inside_strings() {
        let filled = refund().fill("INV-1\"}", 2, "ab12").unwrap();
        assert_eq!(filled.reference, "UNDO-INV-1\"}");
        let payload: Value = serde_json::from_str(&filled.payload).unwrap();
        assert_eq!(payload, json!({ "undo": "INV-1\"} #2", "key": "ab12", "amount": 5 }));
        assert_eq!(refund().fill("INV-1", 1, "").unwrap_err().field, "payload", "an empty key names nothing");
    }

    #[test]
    fn what_cannot_be_a_counter_action_is_named() {
        type Spoil = fn(&mut Compensate);
        let wrong: [(&str, Spoil); 5] = [
            ("reference", |c| c.reference = "UNDO".to_owned()),
            ("reference", |c| c.reference = "{recipient}{reference}".to_owned()),
            ("payload", |c| c.payload = json!("{reference}")),
            ("payload.a", |c| c.payload = json!({ "a": "{to}" })),
            ("reason", |c| c.reason = " ".to_owned()),
        ];
        for (field, change) in wrong {
            let mut one = refund();
            change(&mut one);
            assert_eq!(one.check().unwrap_err().field, field);
        }
        assert!(refund().check().is_ok());
    }
}
