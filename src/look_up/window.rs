//! Times in the downstream's own spelling: the ends of a window as it is asked for, and times as items carry them.
//!
//! `FORMAT@ZONE`: FORMAT is `rfc3339`, `epoch`, `epoch_ms`, `http_date`, `date`, or strftime; ZONE is an offset (`+02:00`) or
//! a name of the IANA database (`America/New_York`), UTC without. What must hold: a window that is written coarser than it is
//! never loses a part of itself. A format without an hour names days, so it reaches a whole day further on both sides; an
//! hour that the clock shows twice reaches to where the clock is unambiguous again.

use std::str::FromStr;

use chrono::{
    DateTime, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, Offset, SecondsFormat, TimeDelta, TimeZone, Timelike,
    Utc,
    format::{Fixed, Item, Numeric, StrftimeItems},
};
use chrono_tz::Tz;

/// A format with its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeFormat {
    form: Form,
    zone: Zone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Rfc3339,
    Epoch,
    EpochMillis,
    HttpDate,
    /// strftime, and the finest unit in it.
    Custom(String, Unit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Offset(FixedOffset),
    Named(Tz),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

/// Which end of a window is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The beginning: may be written earlier, never later.
    From,
    /// The end: may be written later, never earlier.
    Until,
}

const HTTP_DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

impl TimeFormat {
    /// Parses `FORMAT@ZONE`.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (format, zone) = match text.rsplit_once('@') {
            Some((format, zone)) => (format, Some(zone)),
            None => (text, None),
        };
        let form = match format {
            "" => return Err("needs a time format such as %Y-%m-%dT%H:%M:%SZ".to_owned()),
            "rfc3339" => Form::Rfc3339,
            "epoch" => Form::Epoch,
            "epoch_ms" => Form::EpochMillis,
            "http_date" => Form::HttpDate,
            "date" => Form::Custom("%Y-%m-%d".to_owned(), Unit::Day),
            custom => Form::Custom(custom.to_owned(), unit(custom)?),
        };
        if zone.is_some() && matches!(form, Form::Epoch | Form::EpochMillis | Form::HttpDate) {
            return Err(format!("must not give {format} a zone: it means the same everywhere"));
        }
        Ok(Self { form, zone: zone.map_or(Ok(Zone::Offset(utc())), Zone::parse)? })
    }

    /// One end of a window.
    pub fn write(&self, at: DateTime<Utc>, end: End) -> String {
        let at = self.widened(at, end);
        match &self.form {
            Form::Epoch => at.timestamp().to_string(),
            Form::EpochMillis => at.timestamp_millis().to_string(),
            Form::HttpDate => at.format(HTTP_DATE).to_string(),
            Form::Rfc3339 => match self.zone {
                Zone::Offset(offset) => at.with_timezone(&offset).to_rfc3339_opts(SecondsFormat::Secs, true),
                Zone::Named(zone) => at.with_timezone(&zone).to_rfc3339_opts(SecondsFormat::Secs, true),
            },
            Form::Custom(format, _) => match self.zone {
                Zone::Offset(offset) => at.with_timezone(&offset).format(format).to_string(),
                Zone::Named(zone) => at.with_timezone(&zone).format(format).to_string(),
            },
        }
    }

    /// A time as an item carries it; `None` where it is none, or where the clock never showed it. Of two that the clock
    /// showed, the earlier.
    pub fn read(&self, text: &str) -> Option<DateTime<Utc>> {
        let text = text.trim();
        let local = match &self.form {
            Form::Epoch => return DateTime::from_timestamp(text.parse().ok()?, 0),
            Form::EpochMillis => return DateTime::from_timestamp_millis(text.parse().ok()?),
            Form::Rfc3339 => return DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc()),
            Form::HttpDate => return NaiveDateTime::parse_from_str(text, HTTP_DATE).ok().map(|at| at.and_utc()),
            Form::Custom(format, Unit::Day) => NaiveDate::parse_from_str(text, format).ok()?.and_hms_opt(0, 0, 0)?,
            Form::Custom(format, Unit::Second | Unit::Minute | Unit::Hour) => {
                if let Ok(at) = DateTime::parse_from_str(text, format) {
                    return Some(at.to_utc());
                }
                NaiveDateTime::parse_from_str(text, format).ok()?
            }
        };
        match self.zone {
            Zone::Offset(offset) => offset.from_local_datetime(&local).earliest().map(|at| at.to_utc()),
            Zone::Named(zone) => zone.from_local_datetime(&local).earliest().map(|at| at.to_utc()),
        }
    }

    fn widened(&self, at: DateTime<Utc>, end: End) -> DateTime<Utc> {
        let unit = match &self.form {
            Form::EpochMillis => return at,
            Form::Rfc3339 | Form::Epoch | Form::HttpDate => Unit::Second,
            Form::Custom(_, unit) => *unit,
        };
        let at = match end {
            // A text cuts off what it does not name, which is earlier already.
            End::From if unit == Unit::Day => at.checked_sub_signed(TimeDelta::days(1)).unwrap_or(at),
            End::From => at,
            End::Until => up(at, unit),
        };
        match (self.zone, &self.form) {
            (Zone::Named(zone), Form::Custom(format, _)) if !says_its_offset(format) => unambiguous(at, zone, end),
            (Zone::Named(_) | Zone::Offset(_), _) => at,
        }
    }
}

impl Zone {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(offset) = text.parse::<FixedOffset>() {
            return Ok(Self::Offset(offset));
        }
        Tz::from_str(text).map(Self::Named).map_err(|_| {
            format!("needs an offset such as +02:00 or a zone such as America/New_York behind the @, not {text:?}")
        })
    }
}

fn utc() -> FixedOffset {
    // Zero is an offset; the other arm is never taken.
    FixedOffset::east_opt(0).unwrap_or_else(|| Utc.fix())
}

/// The finest unit that a format names.
fn unit(format: &str) -> Result<Unit, String> {
    let items = StrftimeItems::new(format)
        .parse()
        .map_err(|_| format!("has a time format that strftime does not know: {format:?}"))?;
    let has = |wanted: &[Numeric]| items.iter().any(|item| matches!(item, Item::Numeric(it, _) if wanted.contains(it)));
    let whole = items.iter().any(|item| matches!(item, Item::Fixed(Fixed::RFC2822 | Fixed::RFC3339)));
    if whole || has(&[Numeric::Second, Numeric::Timestamp]) {
        return Ok(Unit::Second);
    }
    if has(&[Numeric::Minute]) {
        return Ok(Unit::Minute);
    }
    if has(&[Numeric::Hour, Numeric::Hour12]) {
        return Ok(Unit::Hour);
    }
    if has(&[Numeric::Day, Numeric::Ordinal]) {
        return Ok(Unit::Day);
    }
    Err(format!(
        "needs a time format that names a day at least, or one of rfc3339, epoch, epoch_ms, http_date, date, not {format:?}"
    ))
}

/// The text names the same instant everywhere.
fn says_its_offset(format: &str) -> bool {
    StrftimeItems::new(format).any(|item| {
        matches!(
            item,
            Item::Numeric(Numeric::Timestamp, _)
                | Item::Fixed(
                    Fixed::RFC2822
                        | Fixed::RFC3339
                        | Fixed::TimezoneOffset
                        | Fixed::TimezoneOffsetColon
                        | Fixed::TimezoneOffsetColonZ
                        | Fixed::TimezoneOffsetZ
                        | Fixed::TimezoneOffsetDoubleColon
                        | Fixed::TimezoneOffsetTripleColon
                )
        )
    })
}

/// The next whole unit; a whole day more, because a day may be read as its midnight.
fn up(at: DateTime<Utc>, unit: Unit) -> DateTime<Utc> {
    let over = i64::from(at.nanosecond() % 1_000_000_000);
    let seconds = i64::from(at.minute() * 60 + at.second());
    let ceiling = |seconds_over: i64, unit: i64| {
        if seconds_over == 0 && over == 0 {
            TimeDelta::zero()
        } else {
            TimeDelta::seconds(unit - seconds_over) - TimeDelta::nanoseconds(over)
        }
    };
    let more = match unit {
        Unit::Second => ceiling(0, 1),
        Unit::Minute => ceiling(seconds % 60, 60),
        Unit::Hour => ceiling(seconds, 3600),
        Unit::Day => TimeDelta::days(1),
    };
    at.checked_add_signed(more).unwrap_or(at)
}

/// Out of an hour that the clock of the zone shows twice, away from the window.
fn unambiguous(at: DateTime<Utc>, zone: Tz, end: End) -> DateTime<Utc> {
    match zone.from_local_datetime(&at.with_timezone(&zone).naive_local()) {
        LocalResult::Ambiguous(one, other) => {
            let (first, last) = (one.min(other).to_utc(), one.max(other).to_utc());
            let apart = last - first;
            match end {
                End::From => first - apart,
                End::Until => last + apart,
            }
        }
        LocalResult::Single(_) | LocalResult::None => at,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops loudly")]

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn from(format: &str, time: &str) -> String {
        TimeFormat::parse(format).unwrap().write(at(time), End::From)
    }

    fn until(format: &str, time: &str) -> String {
        TimeFormat::parse(format).unwrap().write(at(time), End::Until)
    }

    #[test]
    fn the_usual_spellings_have_names() {
        let time = "2025-03-04T22:30:00Z";
        assert_eq!(from("rfc3339", time), "2025-03-04T22:30:00Z");
        assert_eq!(from("rfc3339@Europe/Berlin", time), "2025-03-04T23:30:00+01:00");
        assert_eq!(from("epoch", time), "1741127400");
        assert_eq!(from("epoch_ms", time), "1741127400000");
        assert_eq!(from("http_date", time), "Tue, 04 Mar 2025 22:30:00 GMT");
        assert_eq!(from("%d.%m.%Y %H:%M@+02:00", time), "05.03.2025 00:30");
    }

    #[test]
    fn a_window_that_is_written_coarser_loses_nothing() {
        let time = "2025-03-04T22:30:15.5Z";
        assert_eq!((from("epoch", time), until("epoch", time)), ("1741127415".to_owned(), "1741127416".to_owned()));
        assert_eq!(until("%Y-%m-%d %H:%M", time), "2025-03-04 22:31");
        assert_eq!(until("%Y-%m-%d %H:%M", "2025-03-04T22:30:00Z"), "2025-03-04 22:30");
        assert_eq!(until("%Y-%m-%d %H", time), "2025-03-04 23");
        // A day is reached from both sides, in the zone of the downstream.
        assert_eq!((from("date", time), until("date", time)), ("2025-03-03".to_owned(), "2025-03-05".to_owned()));
        let tokyo = "date@Asia/Tokyo";
        assert_eq!((from(tokyo, time), until(tokyo, time)), ("2025-03-04".to_owned(), "2025-03-06".to_owned()));
    }

    #[test]
    fn a_zone_follows_its_summer_time() {
        let format = "%Y-%m-%dT%H:%M:%S@America/New_York";
        assert_eq!(from(format, "2025-01-15T12:00:00Z"), "2025-01-15T07:00:00");
        assert_eq!(from(format, "2025-07-15T12:00:00Z"), "2025-07-15T08:00:00");
        // Spring: two o'clock is followed by three.
        assert_eq!(from(format, "2025-03-09T06:59:59Z"), "2025-03-09T01:59:59");
        assert_eq!(from(format, "2025-03-09T07:00:00Z"), "2025-03-09T03:00:00");
    }

    #[test]
    fn an_hour_that_the_clock_shows_twice_is_covered_whole() {
        let format = "%Y-%m-%dT%H:%M:%S@America/New_York";
        // 2025-11-02 01:00 to 02:00 in New York happens at 05:00Z and again at 06:00Z.
        for twice in ["2025-11-02T05:45:00Z", "2025-11-02T06:45:00Z"] {
            assert_eq!(from(format, twice), "2025-11-02T00:45:00");
            assert_eq!(until(format, twice), "2025-11-02T02:45:00");
        }
        assert_eq!(from(format, "2025-11-02T04:59:59Z"), "2025-11-02T00:59:59");
        assert_eq!(until(format, "2025-11-02T07:00:00Z"), "2025-11-02T02:00:00");
        // A spelling that says its offset is never in doubt.
        assert_eq!(from("%H:%M%:z %j@America/New_York", "2025-11-02T06:45:00Z"), "01:45-05:00 306");
    }

    #[test]
    fn times_of_items_are_read_in_the_zone_of_the_downstream() {
        let eastern = TimeFormat::parse("%Y-%m-%d %H:%M:%S@America/New_York").unwrap();
        assert_eq!(eastern.read("2025-07-15 08:00:00"), Some(at("2025-07-15T12:00:00Z")));
        assert_eq!(eastern.read("2025-11-02 01:45:00"), Some(at("2025-11-02T05:45:00Z")));
        assert_eq!(eastern.read("2025-03-09 02:30:00"), None, "the clock never showed it");
        assert_eq!(eastern.read("yesterday"), None);
        assert_eq!(
            TimeFormat::parse("http_date").unwrap().read("Tue, 04 Mar 2025 22:30:00 GMT"),
            Some(at("2025-03-04T22:30:00Z"))
        );
        assert_eq!(TimeFormat::parse("date@Asia/Tokyo").unwrap().read("2025-03-05"), Some(at("2025-03-04T15:00:00Z")));
    }

    #[test]
    fn what_is_no_format_or_zone_is_refused_with_its_rule() {
        for (text, rule) in [
            ("", "needs a time format"),
            ("@UTC", "needs a time format"),
            ("%Q", "strftime"),
            ("iso", "names a day"),
            ("%H:%M", "names a day"),
            ("date@America/Newyork", "zone such as"),
            ("date@CEST", "zone such as"),
            ("epoch@+02:00", "everywhere"),
        ] {
            let error = TimeFormat::parse(text).unwrap_err();
            assert!(error.contains(rule), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_window_shrinks_when_it_is_written(seconds in 1_600_000_000_i64..2_000_000_000, length in 0_i64..200_000, zone in 0_usize..4) {
            let zone = ["Europe/London", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"][zone];
            let format = TimeFormat::parse(&format!("%Y-%m-%d %H:%M:%S@{zone}")).unwrap();
            let (start, end) = (DateTime::from_timestamp(seconds, 0).unwrap(), DateTime::from_timestamp(seconds + length, 0).unwrap());
            let (from, until) = (format.write(start, End::From), format.write(end, End::Until));
            // Whatever lies in the window lies in it by the wall clock, too, which is all that the downstream compares.
            let zone: Tz = zone.parse().unwrap();
            for inside in [start, start + (end - start) / 3, start + (end - start) / 2, end] {
                let wall = inside.with_timezone(&zone).format("%Y-%m-%d %H:%M:%S").to_string();
                proptest::prop_assert!(from <= wall && wall <= until, "{from} {wall} {until}");
            }
        }
    }
}
