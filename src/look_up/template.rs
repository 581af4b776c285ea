//! The variables of a question: what may stand in braces in the settings of a look-up.
//!
//! `{key}` `{reference}` `{occurrence}` `{recipient}` name what is asked for; `{from:FORMAT}` `{until:FORMAT}` are the ends of
//! the window, FORMAT as in strftime, with an optional fixed offset behind an `@` (`{from:%Y-%m-%d@+02:00}`; UTC without).

use chrono::{DateTime, FixedOffset, Utc, format::StrftimeItems};

use crate::{
    config::template::{Refused, Variable},
    domain::question::Probe,
};

/// A variable of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The full key.
    Key,
    /// The business reference, folded to lower case as the ledger keeps it.
    Reference,
    /// Occurrence of the effect.
    Occurrence,
    /// Recipient in its normal form.
    Recipient,
    /// Start of the window.
    From(TimeFormat),
    /// End of the window.
    Until(TimeFormat),
}

/// How a time is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeFormat {
    format: String,
    offset: FixedOffset,
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
            ("reference", None) => Ok(Self::Reference),
            ("occurrence", None) => Ok(Self::Occurrence),
            ("recipient", None) => Ok(Self::Recipient),
            ("from", Some(format)) => TimeFormat::parse(format).map(Self::From),
            ("until", Some(format)) => TimeFormat::parse(format).map(Self::Until),
            ("from" | "until", None) => Err(format!("needs a time format in {{{name}:…}}")),
            ("key" | "reference" | "occurrence" | "recipient", Some(_)) => {
                Err(format!("must not give {{{name}}} an argument"))
            }
            (other, _) => Err(format!(
                "has an unknown variable {{{other}}} (known: key, reference, occurrence, recipient, from, until)"
            )),
        }
    }
}

impl TimeFormat {
    fn parse(text: &str) -> Result<Self, String> {
        // Only a valid offset counts as one: `@` may stand in a format.
        let (format, offset) = match text.rsplit_once('@') {
            Some((format, offset)) => (
                format,
                offset.parse::<FixedOffset>().map_err(|_| {
                    format!("needs a fixed offset such as +02:00 behind the @, not {offset:?} (zones with summer time are not known)")
                })?,
            ),
            None => (text, FixedOffset::east_opt(0).ok_or("needs an offset")?),
        };
        if format.is_empty() {
            return Err("needs a time format such as %Y-%m-%dT%H:%M:%SZ".to_owned());
        }
        if StrftimeItems::new(format).parse().is_err() {
            return Err(format!("has a time format that strftime does not know: {format:?}"));
        }
        Ok(Self { format: format.to_owned(), offset })
    }

    fn write(&self, at: DateTime<Utc>) -> String {
        at.with_timezone(&self.offset).format(&self.format).to_string()
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
            Self::Reference => ("reference", values.probe.map(|probe| probe.reference.clone())),
            Self::Occurrence => ("occurrence", values.probe.map(|probe| probe.occurrence.to_string())),
            Self::Recipient => ("recipient", values.probe.map(|probe| probe.recipient.clone())),
            Self::From(format) => ("from", Some(format.write(values.from))),
            Self::Until(format) => ("until", Some(format.write(values.until))),
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
            Self::Key | Self::Reference => true,
            Self::Occurrence | Self::Recipient | Self::From(_) | Self::Until(_) => false,
        }
    }

    /// Part of the window, the same for every probe.
    pub fn is_window(&self) -> bool {
        match self {
            Self::From(_) | Self::Until(_) => true,
            Self::Key | Self::Reference | Self::Occurrence | Self::Recipient => false,
        }
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
    }

    #[test]
    fn an_empty_variable_is_refused() {
        assert_eq!(render("q={reference}", "").unwrap_err(), Refused::Empty("reference"));
        assert_eq!(render("q={reference}", " ").unwrap_err(), Refused::Empty("reference"));
    }

    #[test]
    fn an_unknown_variable_or_format_is_refused_at_load() {
        for text in ["{token}", "{from}", "{key:x}", "{from:%Q}", "{from:%Y@America/New_York}", "{until:}"] {
            Template::<Asked>::parse(text, "look_up.http.url").unwrap_err();
        }
    }

    #[test]
    fn a_recipient_stays_out_of_the_evidence() {
        let probe = probe("r");
        let values = Values { probe: Some(&probe), from: probe.sent_from, until: probe.sent_until };
        assert_eq!(Asked::Recipient.evidence(&values).unwrap(), "…");
        assert_eq!(Asked::Reference.evidence(&values).unwrap(), "r");
    }
}
