//! `Retry-After` (RFC 9110 10.2.3): whole seconds, or a date in one of three forms (RFC 9110 5.6.7).

use std::time::Duration;

use chrono::NaiveDateTime;
use http::{HeaderMap, header};

use super::rules::Unit;

/// Seconds to wait, at most `cap`. `None` where nothing is asked for: no header, two of them, anything odd, zero, the past.
/// An amount too large for a number is the cap.
pub fn retry_after(headers: &HeaderMap, unit: Unit, now: u64, cap: Duration) -> Option<u64> {
    let mut all = headers.get_all(header::RETRY_AFTER).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let text = only.to_str().ok()?.trim_matches([' ', '\t']);
    let wait = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let number = text.parse::<u64>().unwrap_or(u64::MAX);
        match unit {
            Unit::Seconds => number,
            Unit::Milliseconds => number.div_ceil(1000),
        }
    } else {
        date(text)?.saturating_sub(now)
    };
    (wait > 0).then(|| wait.min(cap.as_secs()))
}

/// An HTTP date as seconds since the epoch.
fn date(text: &str) -> Option<u64> {
    // The length holds the parser to the exact form; by itself it would take "Sun, 6 Nov 1994" and years of any length.
    let parse = |format: &str| NaiveDateTime::parse_from_str(text, format).ok();
    let found = match text.len() {
        29 => parse("%a, %d %b %Y %H:%M:%S GMT"),
        24 => parse("%a %b %e %H:%M:%S %Y"),
        30..=33 => parse("%A, %d-%b-%y %H:%M:%S GMT"),
        _ => None,
    }?;
    u64::try_from(found.and_utc().timestamp()).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use chrono::DateTime;
    use http::HeaderValue;

    use super::*;

    const NOW: u64 = 784_111_687; // Sun, 06 Nov 1994 08:48:07 GMT, 90 s before the RFC's own example.
    const CAP: Duration = Duration::from_secs(3600);

    fn ask(values: &[&str]) -> Option<u64> {
        ask_in(Unit::Seconds, values)
    }

    fn ask_in(unit: Unit, values: &[&str]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        retry_after(&headers, unit, NOW, CAP)
    }

    #[test]
    fn case_041_all_three_forms_of_a_date_are_read_and_the_past_is_no_wait() {
        assert_eq!(DateTime::from_timestamp(784_111_777, 0).unwrap().to_rfc2822(), "Sun, 6 Nov 1994 08:49:37 +0000");
        assert_eq!(ask(&["Sun, 06 Nov 1994 08:49:37 GMT"]), Some(90));
        assert_eq!(ask(&["Sunday, 06-Nov-94 08:49:37 GMT"]), Some(90));
        assert_eq!(ask(&["Sun Nov  6 08:49:37 1994"]), Some(90));
        assert_eq!(ask(&["Sun, 06 Nov 1994 08:48:00 GMT"]), None);
        assert_eq!(ask(&["Thu, 01 Jan 1970 00:00:00 GMT"]), None);
    }

    #[test]
    fn case_042_odd_values_are_no_wait_and_huge_ones_are_the_cap() {
        for odd in ["-3", "+3", "1.5", "120junk", "0x10", "", "Thu, 32 Foo 2026", "Mon, 06 Nov 1994 08:49:37 GMT", "0"]
        {
            assert_eq!(ask(&[odd]), None, "{odd:?}");
        }
        assert_eq!(ask(&["5", "6"]), None);
        assert_eq!(ask(&[]), None);
        assert_eq!(ask(&["5"]), Some(5));
        assert_eq!(ask(&[" 5 "]), Some(5));
        assert_eq!(ask(&["99999999999999999999"]), Some(3600));
        assert_eq!(ask(&["Fri, 31 Dec 9999 23:59:59 GMT"]), Some(3600));
    }

    #[test]
    fn case_043_seconds_stay_seconds_under_the_cap() {
        assert_eq!(ask(&["555"]), Some(555));
        assert_eq!(ask(&["5550"]), Some(3600));
    }

    #[test]
    fn case_043_where_milliseconds_are_declared_they_are_rounded_up() {
        for (value, seconds) in [("555", 1), ("1000", 1), ("1001", 2), ("99999999999999999999", 3600)] {
            assert_eq!(ask_in(Unit::Milliseconds, &[value]), Some(seconds), "{value}");
        }
        assert_eq!(ask_in(Unit::Milliseconds, &["0"]), None);
        assert_eq!(ask_in(Unit::Milliseconds, &["Sun, 06 Nov 1994 08:49:37 GMT"]), Some(90), "a date is a date");
    }
}
