//! `[destinations.sightings]`: what a downstream reports by itself about what it took: where in its calls our key, its own name,
//! the status and the time stand, and which of its words mean what.

use chrono::{DateTime, Datelike, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sightings {
    /// JSON pointer to the list of reports; the whole body is one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// Pointer, inside a report, to the reference that we gave: our key.
    pub key_at: String,
    /// Pointer to the downstream's own name for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_at: Option<String>,
    /// Pointer to the business reference: finds an intent that was sent before this section was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_at: Option<String>,
    /// Pointer to the status.
    pub status_at: String,
    /// Pointer to the downstream's time; reports are ordered by it, and by their arrival where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_at: Option<String>,
    /// How that time is written.
    #[serde(default)]
    pub time: TimeForm,
    /// Pointer to an error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_at: Option<String>,
    /// Words of the status that mean: the downstream has it, and nothing is final yet.
    #[serde(default)]
    pub accepted: Vec<String>,
    /// … it arrived.
    #[serde(default)]
    pub delivered: Vec<String>,
    /// … the downstream had it, and it did not arrive.
    #[serde(default)]
    pub failed: Vec<String>,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeForm {
    /// RFC 3339.
    #[default]
    Rfc3339,
    /// Seconds since 1970.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
}

impl TimeForm {
    /// Reads one. A year that not everybody can write, the ledger included, is none.
    pub fn read(self, value: &Value) -> Option<DateTime<Utc>> {
        let number = || match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let at = match self {
            Self::Rfc3339 => DateTime::parse_from_rfc3339(value.as_str()?.trim()).ok().map(|at| at.to_utc()),
            Self::Unix => DateTime::from_timestamp(number()?, 0),
            Self::UnixMs => DateTime::from_timestamp_millis(number()?),
        };
        at.filter(|at| (1..=9999).contains(&at.year()))
    }
}

impl Sightings {
    /// What serde cannot see: the member and the rule.
    ///
    /// # Errors
    /// The first that is broken.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let pointers = [
            ("items", self.items.as_ref()),
            ("key_at", Some(&self.key_at)),
            ("id_at", self.id_at.as_ref()),
            ("reference_at", self.reference_at.as_ref()),
            ("status_at", Some(&self.status_at)),
            ("time_at", self.time_at.as_ref()),
            ("code_at", self.code_at.as_ref()),
        ];
        for (name, pointer) in pointers {
            if pointer.is_some_and(|pointer| !pointer.starts_with('/')) {
                return Err((name, "must be a JSON pointer, beginning with /"));
            }
        }
        let words: Vec<&String> = self.accepted.iter().chain(&self.delivered).chain(&self.failed).collect();
        if words.is_empty() {
            return Err(("delivered", "or accepted or failed must name a word of the status"));
        }
        if words
            .iter()
            .enumerate()
            .any(|(at, word)| words.iter().skip(at + 1).any(|other| other.eq_ignore_ascii_case(word)))
        {
            return Err(("delivered", "must not name a word of the status twice, here or in accepted or failed"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_is_read_in_the_form_that_is_declared_and_in_no_other() {
        let at = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        assert_eq!(TimeForm::Rfc3339.read(&json!("2023-11-14T23:13:20+01:00")), Some(at));
        assert_eq!(TimeForm::Unix.read(&json!(1_700_000_000)), Some(at));
        assert_eq!(TimeForm::Unix.read(&json!("1700000000")), Some(at));
        assert_eq!(TimeForm::UnixMs.read(&json!(1_700_000_000_000_i64)), Some(at));
        for odd in [json!(null), json!("yesterday"), json!([]), json!(i64::MAX)] {
            for form in [TimeForm::Rfc3339, TimeForm::Unix, TimeForm::UnixMs] {
                assert_eq!(form.read(&odd), None, "{odd}");
            }
        }
    }

    #[test]
    fn a_mapping_that_cannot_mean_what_it_says_is_refused_by_name() {
        let good = json!({"key_at": "/ref", "status_at": "/status", "delivered": ["ok"], "failed": ["no"]});
        let read = |value: Value| serde_json::from_value::<Sightings>(value).unwrap().check();
        assert_eq!(read(good.clone()), Ok(()));
        for (member, value, field) in [
            ("key_at", json!("ref"), "key_at"),
            ("items", json!("results"), "items"),
            ("failed", json!(["OK"]), "delivered"),
        ] {
            let mut broken = good.clone();
            broken[member] = value;
            assert_eq!(read(broken).unwrap_err().0, field);
        }
    }
}
