//! The variables of a question: what may stand in braces in the settings of a look-up.
//!
//! `{key}` `{reference}` `{occurrence}` `{recipient}` name what is asked for; `{from:FORMAT}` `{until:FORMAT}` are the ends of
//! the window, as [`super::window`] writes them. `{reference}` is what travelled; `{reference:lower}` and `{reference:upper}` are
//! for a downstream that changes the case of what it stores.

use chrono::{DateTime, Utc};

use super::window::{End, TimeFormat};
use crate::{
    config::template::{Refused, Variable},
    domain::question::Probe,
};

/// A variable of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The full key.
    Key,
    /// The business reference.
    Reference(Spelling),
    /// Occurrence of the effect.
    Occurrence,
    /// Recipient in its normal form.
    Recipient,
    /// Start of the window.
    From(TimeFormat),
    /// End of the window.
    Until(TimeFormat),
}

/// How a reference is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As it travelled in the message; lower case where that is not known.
    Given,
    /// In lower case, for a downstream that keeps it so.
    Lower,
    /// In upper case.
    Upper,
}

/// What the variables stand for in one request.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// The probe that is asked for; none where a whole window is listed.
    pub probe: Option<&'a Probe>,
    /// Start of the window.
    pub from: DateTime<Utc>,
    /// End of the window.
    pub until: DateTime<Utc>,
}

impl Variable for Asked {
    fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        match (name, argument) {
            ("key", None) => Ok(Self::Key),
            ("reference", None) => Ok(Self::Reference(Spelling::Given)),
            ("reference", Some("lower")) => Ok(Self::Reference(Spelling::Lower)),
            ("reference", Some("upper")) => Ok(Self::Reference(Spelling::Upper)),
            ("reference", Some(_)) => Err("may give {reference} the argument lower or upper only".to_owned()),
            ("occurrence", None) => Ok(Self::Occurrence),
            ("recipient", None) => Ok(Self::Recipient),
            ("from", Some(format)) => TimeFormat::parse(format).map(Self::From),
            ("until", Some(format)) => TimeFormat::parse(format).map(Self::Until),
            ("from" | "until", None) => Err(format!("needs a time format in {{{name}:…}}")),
            ("key" | "occurrence" | "recipient", Some(_)) => Err(format!("must not give {{{name}}} an argument")),
            (other, _) => Err(format!(
                "has an unknown variable {{{other}}} (known: key, reference, occurrence, recipient, from, until)"
            )),
        }
    }
}

impl Asked {
    /// Its value in one request.
    ///
    /// # Errors
    /// [`Refused::Empty`]; an empty name would ask for everything.
    pub fn value(&self, values: &Values<'_>) -> Result<String, Refused> {
        let (name, text) = match self {
            Self::Key => ("key", values.probe.map(|probe| probe.key.clone())),
            Self::Reference(spelling) => ("reference", values.probe.map(|probe| spelled(probe, *spelling))),
            Self::Occurrence => ("occurrence", values.probe.map(|probe| probe.occurrence.to_string())),
            Self::Recipient => ("recipient", values.probe.map(|probe| probe.recipient.clone())),
            Self::From(format) => ("from", Some(format.write(values.from, End::From))),
            Self::Until(format) => ("until", Some(format.write(values.until, End::Until))),
        };
        text.filter(|text| !text.trim().is_empty()).ok_or(Refused::Empty(name))
    }

    /// The same for evidence that is kept: whom it went to stays out.
    ///
    /// # Errors
    /// As [`Asked::value`].
    pub fn evidence(&self, values: &Values<'_>) -> Result<String, Refused> {
        let value = self.value(values)?;
        Ok(if self == &Self::Recipient { "…".to_owned() } else { value })
    }

    /// Names one intent, so that an answer to it is about that intent alone.
    pub fn names_one(&self) -> bool {
        match self {
            Self::Key | Self::Reference(_) => true,
            Self::Occurrence | Self::Recipient | Self::From(_) | Self::Until(_) => false,
        }
    }

    /// Part of the window, the same for every probe.
    pub fn is_window(&self) -> bool {
        match self {
            Self::From(_) | Self::Until(_) => true,
            Self::Key | Self::Reference(_) | Self::Occurrence | Self::Recipient => false,
        }
    }
}

fn spelled(probe: &Probe, spelling: Spelling) -> String {
    let given = probe.spelled.as_ref().unwrap_or(&probe.reference);
    match spelling {
        Spelling::Given => given.clone(),
        Spelling::Lower => given.to_ascii_lowercase(),
        Spelling::Upper => given.to_ascii_uppercase(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on must stop loudly")]
mod tests {
    use chrono::TimeZone;

    use super::*;
    use crate::{
        config::template::{Encode, Template},
        domain::question::Role,
    };

    fn probe(reference: &str) -> Probe {
        let at = Utc.with_ymd_and_hms(2025, 3, 4, 22, 30, 0).unwrap();
        Probe {
            role: Role::Subject,
            key: "k".repeat(32),
            reference: reference.to_owned(),
            spelled: None,
            occurrence: 2,
            recipient: "+4915112345678".to_owned(),
            sent_from: at,
            sent_until: at,
        }
    }

    fn render(text: &str, reference: &str) -> Result<String, Refused> {
        let probe = probe(reference);
        let values = Values { probe: Some(&probe), from: probe.sent_from, until: probe.sent_until };
        Template::<Asked>::parse(text, "x").unwrap().render(Encode::Verbatim, &|asked| asked.value(&values))
    }

    #[test]
    fn every_variable_has_its_value() {
        assert_eq!(render("{reference};{occurrence};{recipient}", "inv-1").unwrap(), "inv-1;2;+4915112345678");
        assert_eq!(render("{from:%Y-%m-%dT%H:%M:%SZ}", "x").unwrap(), "2025-03-04T22:30:00Z");
        assert_eq!(render("{until:%Y-%m-%d %H:%M@+02:00}", "x").unwrap(), "2025-03-05 00:30");
        assert_eq!(render("{from:%s}", "x").unwrap(), "1741127400");
        assert_eq!(render("{reference:upper}", "inv-1").unwrap(), "INV-1");
        let mut travelled = probe("inv-1");
        travelled.spelled = Some("Inv-1".to_owned());
        let values = Values { probe: Some(&travelled), from: travelled.sent_from, until: travelled.sent_until };
        assert_eq!(Asked::Reference(Spelling::Given).value(&values).unwrap(), "Inv-1");
        assert_eq!(Asked::Reference(Spelling::Lower).value(&values).unwrap(), "inv-1");
    }

    #[test]
    fn an_empty_variable_is_refused() {
        assert_eq!(render("q={reference}", "").unwrap_err(), Refused::Empty("reference"));
        assert_eq!(render("q={reference}", " ").unwrap_err(), Refused::Empty("reference"));
    }

    #[test]
    fn an_unknown_variable_or_format_is_refused_at_load() {
        for text in [
            "{token}",
            "{from}",
            "{key:x}",
            "{from:%Q}",
            "{from:%Y-%m-%d@America/Newyork}",
            "{until:}",
            "{reference:title}",
        ] {
            Template::<Asked>::parse(text, "look_up.http.url").unwrap_err();
        }
    }

    #[test]
    fn a_recipient_stays_out_of_the_evidence() {
        let probe = probe("r");
        let values = Values { probe: Some(&probe), from: probe.sent_from, until: probe.sent_until };
        assert_eq!(Asked::Recipient.evidence(&values).unwrap(), "…");
        assert_eq!(Asked::Reference(Spelling::Given).evidence(&values).unwrap(), "r");
    }
}
