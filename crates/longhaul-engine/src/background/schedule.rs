//! The times at which a schedule fires, computed from its cron pattern or its interval.
//!
//! Invariant: nothing here reads a clock.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Zoned;
use jiff::tz::TimeZone;
use longhaul_core::schedule::{CatchUp, ScheduleTiming};
use longhaul_core::time::{Millis, Timestamp};

/// Maximum number of missed firings that `catch_up: all` makes up for.
pub(crate) const CATCH_UP_MAX: usize = 100;

/// Maximum delay after which a firing still counts as on time and not as missed.
const ON_TIME: Millis = Millis::from_secs(60);

/// Minimum length of the fixed interval of a schedule.
const EVERY_MIN: Millis = Millis::from_secs(1);
/// Maximum length of the fixed interval of a schedule.
const EVERY_MAX: Millis = Millis::from_secs(366 * 24 * 60 * 60);

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Maximum length in bytes of a cron pattern.
const CRON_BYTES_MAX: usize = 256;
/// Maximum length in bytes of the name of a time zone.
const TZ_BYTES_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(crate) enum Calendar {
    /// Times that match a cron pattern in a time zone.
    Cron(Box<Cron>, TimeZone),
    /// Times that differ from `anchor` by a multiple of the interval `every`.
    Every { every: Millis, anchor: Timestamp },
}

impl Calendar {
    /// Parses the timing of a schedule. `anchor` is any time at which a schedule with a fixed
    /// interval fires. The error says what is wrong and shows a valid value.
    pub(crate) fn parse(timing: &ScheduleTiming, anchor: Timestamp) -> Result<Self, String> {
        match timing {
            ScheduleTiming::Cron { cron, tz } => {
                Ok(Self::Cron(Box::new(parse_cron(cron)?), parse_time_zone(tz)?))
            }
            ScheduleTiming::Every(every) if (EVERY_MIN..=EVERY_MAX).contains(every) => {
                Ok(Self::Every { every: *every, anchor })
            }
            ScheduleTiming::Every(_) => {
                Err("the interval of a schedule must be between 1 second and 366 days".to_owned())
            }
        }
    }

    /// Returns the first firing time after `at`. `None` means that there is none.
    pub(crate) fn next_firing_after(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron, tz) => {
                to_timestamp(&cron.find_next_occurrence(&to_zoned(at, tz)?, false).ok()?)
            }
            Self::Every { every, anchor } => {
                let next = last_interval_start(*anchor, *every, at).plus(*every);
                Some(next).filter(|next| *next > at)
            }
        }
    }

    /// Returns the last firing time at or before `at`. `None` means that there is none.
    fn last_firing_at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron, tz) => {
                to_timestamp(&cron.find_previous_occurrence(&to_zoned(at, tz)?, true).ok()?)
            }
            Self::Every { every, anchor } => Some(last_interval_start(*anchor, *every, at)),
        }
    }
}

/// Returns the last time at or before `at` that is a multiple of `every` away from `anchor`.
fn last_interval_start(anchor: Timestamp, every: Millis, at: Timestamp) -> Timestamp {
    let every = i64::try_from(every.0).unwrap_or(i64::MAX).saturating_mul(1_000).max(1);
    let elapsed = at.as_micros().saturating_sub(anchor.as_micros());
    Timestamp::from_micros(at.as_micros().saturating_sub(elapsed.rem_euclid(every)))
}

fn parse_cron(text: &str) -> Result<Cron, String> {
    const EXAMPLE: &str = "an example is `0 9 * * MON-FRI`: minute, hour, day of the month, \
                           month and day of the week";
    let shown: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    if text.len() > CRON_BYTES_MAX {
        return Err(format!("a cron pattern has at most {CRON_BYTES_MAX} bytes; {EXAMPLE}"));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| {
        let reason = error.to_string();
        format!(
            "the cron pattern `{shown}` is invalid: {}; {EXAMPLE}",
            reason.trim_end_matches('.')
        )
    })
}

/// Returns the time zone with this IANA name. The error says so if there is none.
pub(crate) fn parse_time_zone(name: &str) -> Result<TimeZone, String> {
    let found = if name.len() <= TZ_BYTES_MAX { TimeZone::get(name).ok() } else { None };
    found.ok_or_else(|| {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(TZ_BYTES_MAX).collect();
        format!("there is no time zone named `{shown}`; an example is `Europe/Berlin`")
    })
}

/// Converts a time to a date and time in a time zone, rounded down to a whole second. The search
/// for matching times may skip one if it starts at a fraction of a second.
fn to_zoned(at: Timestamp, tz: &TimeZone) -> Option<Zoned> {
    let second = at.as_micros().div_euclid(MICROS_PER_SECOND);
    Some(jiff::Timestamp::from_second(second).ok()?.to_zoned(tz.clone()))
}

fn to_timestamp(at: &Zoned) -> Option<Timestamp> {
    Some(Timestamp::from_micros(at.timestamp().as_microsecond()))
}

/// Due and missed firing times of a schedule at the time `now`, and the next firing time after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FiringPlan {
    /// Times of the firings that each start a run now, oldest first.
    pub(crate) times: Vec<Timestamp>,
    /// Whether the oldest missed firings start no run because there are too many. Always false
    /// unless all missed firings are to be caught up.
    pub(crate) is_truncated: bool,
    /// Time of the next firing after now. `None` means that there is none.
    pub(crate) next: Option<Timestamp>,
}

impl FiringPlan {
    /// Returns which firings of a schedule start a run now. `due` is the time at which the schedule
    /// was due, which is not after `now`.
    pub(crate) fn for_due_schedule(
        calendar: &Calendar,
        catch_up: CatchUp,
        due: Timestamp,
        now: Timestamp,
    ) -> Self {
        let count = match catch_up {
            CatchUp::Skip | CatchUp::Once => 1,
            CatchUp::All => CATCH_UP_MAX,
        };
        // Backwards from now, so that the cost does not depend on how long nobody fired.
        let mut times: Vec<Timestamp> = Vec::new();
        let mut cursor = Some(now);
        while times.len() < count
            && let Some(time) = cursor.and_then(|at| calendar.last_firing_at_or_before(at))
            && time > due
        {
            times.push(time);
            // No two firings are less than a second apart.
            cursor =
                Some(Timestamp::from_micros(time.as_micros().saturating_sub(MICROS_PER_SECOND)));
        }
        // The due time itself always counts, even if the time zone's rules have changed since.
        let is_truncated = times.len() == count && catch_up == CatchUp::All;
        if times.len() < count {
            times.push(due);
        }
        times.reverse();
        if catch_up == CatchUp::Skip {
            times.retain(|time| now.duration_since(*time) <= ON_TIME);
        }
        Self { times, is_truncated, next: calendar.next_firing_after(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cron(cron: &str, tz: &str) -> Result<Calendar, String> {
        let timing = ScheduleTiming::Cron { cron: cron.to_owned(), tz: tz.to_owned() };
        Calendar::parse(&timing, Timestamp::default())
    }

    /// Checks that a calendar has exactly these times after `from`, forwards and backwards.
    fn assert_next_times(calendar: &Calendar, from: &str, times: &[&str]) {
        let times: Vec<Timestamp> = times.iter().map(|text| time(text)).collect();
        let mut at = time(from);
        for expected in &times {
            at = calendar.next_firing_after(at).unwrap();
            assert_eq!(at, *expected, "{calendar:?}");
        }
        let mut previous = calendar.last_firing_at_or_before(at.plus(Millis(400)));
        for expected in times.iter().rev() {
            assert_eq!(previous, Some(*expected), "{calendar:?}");
            previous =
                calendar.last_firing_at_or_before(Timestamp::from_micros(expected.as_micros() - 1));
        }
    }

    #[test]
    fn a_cron_pattern_follows_the_clock_of_its_time_zone() {
        // In Berlin, the clock goes from 02:00 to 03:00 on 2026-03-29 and from 03:00 to 02:00 on
        // 2026-10-25.
        for (pattern, from, times) in [
            (
                "0 9 * * *",
                "2026-03-28T00:00:00Z",
                &["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"][..],
            ),
            // 02:30 does not exist on the 29th: it fires when the clock has changed.
            (
                "30 2 * * *",
                "2026-03-28T00:00:00Z",
                &["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
            ),
            // 02:30 exists twice on the 25th: it fires once.
            (
                "30 2 * * *",
                "2026-10-24T12:00:00Z",
                &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
            ),
            // An hourly pattern fires each hour, also in the repeated one.
            (
                "0 * * * *",
                "2026-10-24T23:30:00Z",
                &["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"],
            ),
            (
                "*/20 * * * * *",
                "2026-01-01T00:00:00.5Z",
                &["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"],
            ),
            ("0 9 * * MON-FRI", "2026-01-02T12:00:00Z", &["2026-01-05T08:00:00Z"]),
            ("@daily", "2026-01-02T12:00:00Z", &["2026-01-02T23:00:00Z"]),
        ] {
            assert_next_times(&cron(pattern, "Europe/Berlin").unwrap(), from, times);
        }
    }

    #[test]
    fn the_last_firing_time_is_never_in_the_future() {
        let calendar = cron("0 * * * *", "Europe/Berlin").unwrap();
        // Half a second before the repeated hour begins.
        let at = time("2026-10-25T00:59:59.5Z");
        assert_eq!(calendar.last_firing_at_or_before(at), Some(time("2026-10-25T00:00:00Z")));
        assert_eq!(calendar.next_firing_after(at), Some(time("2026-10-25T01:00:00Z")));
    }

    #[test]
    fn an_interval_is_counted_from_its_anchor() {
        let timing = ScheduleTiming::Every(Millis::from_secs(30));
        let calendar = Calendar::parse(&timing, time("2026-01-01T00:00:10Z")).unwrap();
        assert_next_times(
            &calendar,
            "2026-01-01T00:00:10Z",
            &["2026-01-01T00:00:40Z", "2026-01-01T00:01:10Z"],
        );
        assert_eq!(
            calendar.last_firing_at_or_before(time("2026-01-01T00:00:09Z")),
            Some(time("2025-12-31T23:59:40Z"))
        );
    }

    #[test]
    fn an_invalid_timing_is_an_error_with_an_example() {
        let long = "*".repeat(CRON_BYTES_MAX + 1);
        for (pattern, tz, reason) in [
            ("", "UTC", "is invalid"),
            ("every day", "UTC", "`every day` is invalid"),
            ("61 * * * *", "UTC", "`61 * * * *` is invalid"),
            ("* * * * * * 2030", "UTC", "is invalid"),
            (&long, "UTC", "at most 256 bytes"),
            ("0 9 * * *", "Berlin", "no time zone named `Berlin`; an example is `Europe/Berlin`"),
            ("0 9 * * *", "../../etc/passwd", "no time zone"),
            ("0 9 * * *", "", "no time zone"),
        ] {
            let error = cron(pattern, tz).unwrap_err();
            assert!(error.contains(reason) && error.contains("example"), "{pattern}: {error}");
        }
        for interval in [0, 999, EVERY_MAX.0 + 1, u64::MAX] {
            let timing = ScheduleTiming::Every(Millis(interval));
            assert!(Calendar::parse(&timing, Timestamp::default()).is_err(), "{interval}");
        }
    }

    #[test]
    fn a_cron_pattern_that_never_matches_has_no_next_time() {
        let calendar = cron("0 0 30 2 *", "Europe/Berlin").unwrap();
        assert_eq!(calendar.next_firing_after(time("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn missed_firings_are_caught_up_by_policy() {
        let calendar = cron("0 * * * *", "UTC").unwrap();
        let due = time("2026-01-01T01:00:00Z");
        let hours = |hours: &[u32]| -> Vec<Timestamp> {
            hours.iter().map(|hour| time(&format!("2026-01-01T{hour:02}:00:00Z"))).collect()
        };
        for (now, catch_up, expected) in [
            ("2026-01-01T01:00:00Z", CatchUp::Skip, &[1][..]),
            ("2026-01-01T01:00:59Z", CatchUp::Skip, &[1]),
            ("2026-01-01T01:01:01Z", CatchUp::Skip, &[]),
            ("2026-01-01T04:00:05Z", CatchUp::Skip, &[4]),
            ("2026-01-01T04:30:00Z", CatchUp::Skip, &[]),
            ("2026-01-01T04:30:00Z", CatchUp::Once, &[4]),
            ("2026-01-01T01:30:00Z", CatchUp::Once, &[1]),
            ("2026-01-01T04:30:00Z", CatchUp::All, &[1, 2, 3, 4]),
        ] {
            let plan = FiringPlan::for_due_schedule(&calendar, catch_up, due, time(now));
            assert_eq!(plan.times, hours(expected), "{now} {catch_up:?}");
            assert!(!plan.is_truncated, "{now} {catch_up:?}");
            assert!(plan.next > Some(time(now)), "{now} {catch_up:?}");
        }
        let plan = FiringPlan::for_due_schedule(
            &calendar,
            CatchUp::All,
            due,
            time("2027-01-01T00:30:00Z"),
        );
        assert_eq!((plan.times.len(), plan.is_truncated), (CATCH_UP_MAX, true));
        assert_eq!(plan.times.last(), Some(&time("2027-01-01T00:00:00Z")));
    }
}
