//! Times on the command line: absolute ones, and dates and times of this machine's time zone.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};
use longhaul_core::time::Timestamp;

/// Parses a time with an offset, such as `2026-11-20T08:00:00Z`, a date and time of this machine's
/// time zone, or a time of day, of which the next one counts.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    parse_relative_to(text, &Zoned::now())
}

fn parse_relative_to(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let zone: &TimeZone = now.time_zone();
    let zoned = if let Ok(time) = text.parse::<Time>() {
        next_time_of_day(time, now)
    } else {
        text.parse::<DateTime>().and_then(|time| time.to_zoned(zone.clone()))
    };
    let invalid =
        |_| "it is no time; write a time such as 2026-11-20T08:00:00Z, 2026-11-20T08:00 or 08:00";
    let micros = zoned.map_err(invalid)?.timestamp().as_microsecond();
    Ok(Timestamp::from_micros(micros))
}

/// Returns the next time at which a clock in the time zone of `now` shows this time of day.
fn next_time_of_day(time: Time, now: &Zoned) -> Result<Zoned, jiff::Error> {
    let zone = now.time_zone();
    let today = now.date().to_datetime(time).to_zoned(zone.clone())?;
    match today > *now {
        true => Ok(today),
        false => now.date().checked_add(1.day())?.to_datetime(time).to_zoned(zone.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_absolute_or_of_the_local_zone() {
        let now: Zoned = "2026-11-20T10:30:00+01:00[+01:00]".parse().unwrap();
        for (text, expected) in [
            ("2026-11-20T08:00:00Z", "2026-11-20T08:00:00.000000Z"),
            ("2026-11-21T08:00", "2026-11-21T07:00:00.000000Z"),
            ("2026-11-21 08:00:30", "2026-11-21T07:00:30.000000Z"),
            ("11:00", "2026-11-20T10:00:00.000000Z"),
            ("10:30", "2026-11-21T09:30:00.000000Z"),
            ("08:00", "2026-11-21T07:00:00.000000Z"),
        ] {
            let time = parse_relative_to(text, &now).unwrap();
            assert_eq!(time.to_string(), expected, "{text}");
        }
        for text in ["", "soon", "25:00", "2026-13-01T00:00", "8"] {
            let error = parse_relative_to(text, &now).unwrap_err();
            assert!(error.contains("write a time such as"), "{text}: {error}");
        }
    }
}
