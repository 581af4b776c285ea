//! What else an item must say beside our name: that it is one of those that count (`skip`), and that it is consistent with
//! what was sent (`conflict`). Pure; used by `items`.

use serde::Deserialize;
use serde_json::Value;

use super::items::{same_recipient, texts};
use crate::{
    config::{
        BuildError,
        template::{JsonTemplate, Refused},
    },
    domain::mark::{self, Carried},
    look_up::template::{Asked, Values},
};

/// `[[…answer.checks]]`, as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// Pointer into the item.
    pub at: String,
    /// How it is compared.
    #[serde(default)]
    pub op: Op,
    /// With what; variables inside its strings. A list: one of them.
    pub value: Value,
    /// What it means where it does not hold.
    pub otherwise: Otherwise,
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Op {
    /// The same value; texts to the letter.
    #[default]
    Eq,
    /// Texts without regard to ASCII case.
    EqCi,
    /// Numbers by their value: 10, 10.0 and "10.00" are one number.
    Number,
    /// The same address or telephone number, in any usual spelling.
    Recipient,
    /// The text holds the value as a word.
    Token,
    /// The text begins with it.
    Prefix,
    /// The text ends with it.
    Suffix,
    /// The text holds it anywhere.
    Contains,
}

/// What an item is that does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Otherwise {
    /// None of ours: an incoming message that quotes our reference, a draft, a test.
    Skip,
    /// Ours by its name, but not what was sent: a person must look.
    Conflict,
}

/// A checked setting.
pub(super) struct Check {
    at: String,
    op: Op,
    value: JsonTemplate<Asked>,
    otherwise: Otherwise,
}

/// What the checks say about one item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passed {
    Yes,
    /// It does not count.
    Skip,
    /// It may or may not count: what should be compared is not there.
    Unclear,
    /// It counts, and contradicts at this pointer.
    Conflict(String),
}

impl Check {
    pub(super) fn build(setting: &Setting, field: &str) -> Result<Self, BuildError> {
        let fail = |what: &str, rule: &str| Err(BuildError::new(format!("{field}.{what}"), rule));
        if !setting.at.starts_with('/') {
            return fail("at", "must be a JSON pointer that starts with /");
        }
        let value = JsonTemplate::<Asked>::parse(&setting.value, &format!("{field}.value"))?;
        if value.variables().iter().any(|asked| asked.is_window()) {
            return fail("value", "must not compare with {from:…} or {until:…}");
        }
        let fits = |value: &Value| match setting.op {
            Op::Eq => true,
            Op::Number => number(value).is_some() || value.as_str().is_some_and(|text| text.contains('{')),
            Op::EqCi | Op::Recipient | Op::Token | Op::Prefix | Op::Suffix | Op::Contains => {
                value.as_str().is_some_and(|text| !text.is_empty())
            }
        };
        let all_fit = match &setting.value {
            Value::Array(list) => !list.is_empty() && list.iter().all(fits),
            single => fits(single),
        };
        if !all_fit {
            return fail(
                "value",
                "must be of the kind that op compares: a text that is not empty, or a number, or a list of them",
            );
        }
        Ok(Self { at: setting.at.clone(), op: setting.op, value, otherwise: setting.otherwise })
    }

    fn holds(&self, item: &Value, values: &Values<'_>) -> Result<Option<bool>, Refused> {
        let wanted = self.value.render(&|asked| asked.value(values))?;
        let wanted = match wanted {
            Value::Array(list) => list,
            single => vec![single],
        };
        let Some(found) = item.pointer(&self.at).filter(|found| !found.is_null()) else { return Ok(None) };
        Ok(Some(wanted.iter().any(|wanted| self.same(found, wanted))))
    }

    fn same(&self, found: &Value, wanted: &Value) -> bool {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let by = |compare: &dyn Fn(&str, &str) -> bool| {
            text(wanted).is_some_and(|wanted| texts(found, "").iter().any(|found| compare(found.trim(), &wanted)))
        };
        match self.op {
            Op::Eq => found == wanted || by(&|found, wanted| found == wanted),
            Op::EqCi => by(&|found, wanted| found.eq_ignore_ascii_case(wanted)),
            Op::Number => number(found).is_some() && number(found) == number(wanted),
            Op::Recipient => by(&same_recipient),
            Op::Token => by(&|found, wanted| mark::carried(found, wanted) == Carried::Yes),
            Op::Prefix => by(&|found, wanted| found.starts_with(wanted)),
            Op::Suffix => by(&|found, wanted| found.ends_with(wanted)),
            Op::Contains => by(&|found, wanted| found.contains(wanted)),
        }
    }
}

/// All checks of one item.
pub(super) fn passed(checks: &[Check], item: &Value, values: &Values<'_>) -> Passed {
    let mut worst = Passed::Yes;
    for check in checks {
        match (check.holds(item, values), check.otherwise) {
            (Ok(Some(true)), _) => {}
            (Ok(Some(false)), Otherwise::Skip) => return Passed::Skip,
            // Where the probe has no such value there is nothing to contradict.
            (Ok(None), Otherwise::Conflict) | (Err(_), Otherwise::Conflict) => {}
            (Ok(None) | Err(_), Otherwise::Skip) => worst = Passed::Unclear,
            (Ok(Some(false)), Otherwise::Conflict) if worst == Passed::Yes => {
                worst = Passed::Conflict(check.at.clone())
            }
            (Ok(Some(false)), Otherwise::Conflict) => {}
        }
    }
    worst
}

/// Digits and exponent of a number, or of a text that is one: 10, 10.0, "10.00" and 1e1 are the same.
fn number(value: &Value) -> Option<(bool, String, i64)> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && part.is_empty() || !whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = format!("{whole}{part}");
    let digits = digits.trim_start_matches('0');
    let kept = digits.trim_end_matches('0');
    if kept.is_empty() {
        return Some((false, String::new(), 0));
    }
    let zeros = i64::try_from(digits.len() - kept.len()).ok()?;
    let exponent = exponent.checked_sub(i64::try_from(part.len()).ok()?)?.checked_add(zeros)?;
    Some((negative, kept.to_owned(), exponent))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::domain::question::{Probe, Role};

    fn check(setting: &Value, item: &Value) -> Passed {
        let probe = Probe {
            role: Role::Subject,
            key: "k".repeat(32),
            reference: "inv-229".to_owned(),
            spelled: Some("INV-229".to_owned()),
            occurrence: 2,
            recipient: "+4915112345678".to_owned(),
            sent_from: DateTime::UNIX_EPOCH,
            sent_until: DateTime::UNIX_EPOCH,
        };
        let values = Values { probe: Some(&probe), from: probe.sent_from, until: probe.sent_until };
        let setting: Setting = serde_json::from_value(setting.clone()).unwrap();
        passed(&[Check::build(&setting, "checks[0]").unwrap()], item, &values)
    }

    #[test]
    fn every_operator_says_what_it_says() {
        for (op, value, found, holds) in [
            ("eq", json!("INV-229"), json!("INV-229"), true),
            ("eq", json!("{reference}"), json!("inv-229"), false),
            ("eq", json!(true), json!(true), true),
            ("eq", json!([200, 201]), json!(201), true),
            ("eq", json!("{occurrence}"), json!(2), true),
            ("eq_ci", json!("{reference}"), json!("inv-229"), true),
            ("number", json!(1000), json!("1000.00"), true),
            ("number", json!("1e3"), json!(1000.0), true),
            ("number", json!(1000), json!("1000.01"), false),
            ("number", json!(9_007_199_254_740_993_i64), json!("9007199254740992"), false),
            ("number", json!(10), json!("10,00"), false),
            ("recipient", json!("{recipient}"), json!("0049 151 12345678"), true),
            ("recipient", json!("{recipient}"), json!("+4915112345679"), false),
            ("token", json!("{reference}"), json!("Invoice INV-229."), true),
            ("token", json!("{reference}"), json!("Invoice INV-2291."), false),
            ("prefix", json!("outbound"), json!("outbound-api"), true),
            ("prefix", json!("outbound"), json!("inbound"), false),
            ("suffix", json!("@acme.test"), json!("ap@acme.test"), true),
            ("contains", json!("acme"), json!("ap@acme.test"), true),
            ("contains", json!("acme"), json!(["x", "acme"]), true),
        ] {
            let expected = if holds { Passed::Yes } else { Passed::Skip };
            let setting = json!({ "at": "/x", "op": op, "value": value, "otherwise": "skip" });
            assert_eq!(check(&setting, &json!({ "x": found })), expected, "{op} {value} {found}");
        }
    }

    #[test]
    fn what_is_missing_is_unclear_to_a_filter_and_no_contradiction() {
        let setting = |otherwise: &str| json!({ "at": "/x", "value": "a", "otherwise": otherwise });
        assert_eq!(check(&setting("skip"), &json!({})), Passed::Unclear);
        assert_eq!(check(&setting("skip"), &json!({ "x": null })), Passed::Unclear);
        assert_eq!(check(&setting("conflict"), &json!({})), Passed::Yes);
        assert_eq!(check(&setting("conflict"), &json!({ "x": "b" })), Passed::Conflict("/x".to_owned()));
    }
}
