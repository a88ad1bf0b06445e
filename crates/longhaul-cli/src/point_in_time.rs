//! Points in time on the command line: an age such as `2h`, a date, or a time with its zone.

use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use longhaul_core::duration::parse_duration;
use longhaul_core::time::{Millis, Timestamp};

/// A point in time as given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointInTime {
    /// This long before now.
    Ago(Millis),
    At(Timestamp),
}

impl PointInTime {
    /// Returns the point in time as a timestamp.
    pub(crate) fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(age) => {
                let micros = i64::try_from(age.0.saturating_mul(1_000)).unwrap_or(i64::MAX);
                Timestamp::from_micros(now.as_micros().saturating_sub(micros).max(0))
            }
        }
    }
}

impl FromStr for PointInTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(age) = parse_duration(text) {
            return Ok(Self::Ago(age));
        }
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        // A time without a zone would be read as a date.
        let date = text.parse::<Date>().ok().filter(|date| date.to_string() == text);
        match date.and_then(|date| date.to_zoned(TimeZone::system()).ok()) {
            Some(midnight) => {
                Ok(Self::At(Timestamp::from_micros(midnight.timestamp().as_microsecond())))
            }
            None => Err("expected an age such as 30m, 2h or 7d, a date such as 2026-11-19, or a \
                           time such as 2026-11-19T08:00:00Z"
                .to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_dates_and_times_are_points_in_time() {
        let parse = |text: &str| text.parse::<PointInTime>();
        let now: Timestamp = "2026-11-19T12:00:00Z".parse().unwrap();
        let two_hours = parse("2h").unwrap().resolve(now);
        assert_eq!(two_hours.to_string(), "2026-11-19T10:00:00.000000Z");
        let at = parse("2026-11-18T08:00:00+01:00").unwrap().resolve(now);
        assert_eq!(at.to_string(), "2026-11-18T07:00:00.000000Z");
        let midnight = parse("2026-11-18").unwrap().resolve(now);
        assert!(at.is_within(Millis::from_secs(24 * 3_600), midnight));
        for invalid in ["", "yesterday", "2026-13-01", "-2h", "2026-11-18T08:00:00"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }
}
