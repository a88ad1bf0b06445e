//! Spend caps of the configuration and their windows. A window begins at midnight in the time zone
//! of its cap, so a day has 23 or 25 hours when the clock changes.

use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, ToSpan as _};
use longhaul_core::policy::spend_cap::{
    CapLimitChange, CapWindowLength, CapWindowRange, CapWithWindow, SpendCap,
};
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::StoreError;
use longhaul_core::time::Timestamp;

use crate::background::schedule::parse_time_zone;

/// Spend caps of the configuration. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub struct SpendCaps {
    caps: Arc<[(SpendCap, TimeZone)]>,
}

impl SpendCaps {
    /// Creates the spend caps of a configuration. The error says which time zone is unknown, or
    /// which two caps limit the same usage.
    pub fn new(caps: Vec<SpendCap>) -> Result<Self, String> {
        for (index, cap) in caps.iter().enumerate() {
            let id = cap.cap_id();
            if caps.iter().take(index).any(|earlier| earlier.cap_id() == id) {
                return Err(format!("two caps limit the same usage (`{id}`): remove one"));
            }
        }
        let caps = caps.into_iter().map(|cap| {
            let tz = parse_time_zone(&cap.tz)?;
            Ok::<_, String>((cap, tz))
        });
        Ok(Self { caps: caps.collect::<Result<Vec<_>, _>>()?.into() })
    }

    /// Returns whether the configuration has no spend caps.
    pub(crate) fn is_empty(&self) -> bool {
        self.caps.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SpendCap> {
        self.caps.iter().map(|(cap, _)| cap)
    }

    /// Returns all spend caps, each with the window (such as a day) that contains this time.
    pub(crate) fn caps_with_windows_at(&self, now: Timestamp) -> Vec<CapWithWindow> {
        let current = self.caps.iter().filter_map(|(cap, tz)| {
            Some(CapWithWindow { cap: cap.clone(), period: window_at(cap.window, tz, now)? })
        });
        current.collect()
    }
}

/// Returns the start and end of a spend cap's window (such as a day) that contains this time.
/// `None` if the time is outside of the range of dates that can be represented.
fn window_at(window: CapWindowLength, tz: &TimeZone, now: Timestamp) -> Option<CapWindowRange> {
    let now = jiff::Timestamp::from_microsecond(now.as_micros()).ok()?;
    let today = now.to_zoned(tz.clone()).date();
    let (first, length): (Date, Span) = match window {
        CapWindowLength::Day => (today, 1.day()),
        CapWindowLength::Week => {
            let since_monday = i64::from(today.weekday().to_monday_zero_offset());
            (today.checked_sub(since_monday.days()).ok()?, 1.week())
        }
        CapWindowLength::Month => (today.first_of_month(), 1.month()),
    };
    // A midnight that does not exist is the first instant after it.
    let midnight = |date: Date| {
        let zoned = date.to_zoned(tz.clone()).ok()?;
        Some(Timestamp::from_micros(zoned.timestamp().as_microsecond()))
    };
    let next = first.checked_add(length).ok()?;
    Some(CapWindowRange { start: midnight(first)?, end: midnight(next)? })
}

/// Stores the configured limits in the rows that count the usage of the current windows. Runs that
/// wait at a cap then continue if the configuration has raised or removed the cap.
pub(crate) async fn store_cap_limits(
    caps: &SpendCaps,
    records: &dyn RecordStore,
) -> Result<(), StoreError> {
    let rows = records.cap_counter_rows().await?;
    let caps = caps.caps_with_windows_at(records.now().await?);
    let configured = caps.iter().map(|current| CapLimitChange {
        cap: current.cap.cap_id(),
        subject: None,
        period: current.period,
        limit: current.cap.limit,
    });
    let removed = rows.iter().filter(|row| caps.iter().all(|one| one.cap.cap_id() != row.key.cap));
    let removed = removed.map(|row| CapLimitChange {
        cap: row.key.cap.clone(),
        subject: None,
        period: CapWindowRange { start: row.key.window_start, end: row.window_end },
        limit: u64::MAX,
    });
    for change in configured.chain(removed) {
        if rows.iter().any(|row| row.key.cap == change.cap && row.limit != change.limit) {
            records.set_cap_limit(change).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use longhaul_core::policy::spend_cap::{CapReachedAction, CapUnit, CapUsageGrouping};

    use super::*;

    #[test]
    fn a_cap_window_begins_at_midnight_of_its_time_zone() {
        use CapWindowLength::{Day, Month, Week};
        for (window, tz, now, start, end) in [
            (Day, "UTC", "2026-03-29T23:59:59.9Z", "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"),
            (Day, "UTC", "2026-03-30T00:00:00Z", "2026-03-30T00:00:00Z", "2026-03-31T00:00:00Z"),
            // In Berlin, 2026-03-29 has 23 hours and 2026-10-25 has 25.
            (
                Day,
                "Europe/Berlin",
                "2026-03-29T12:00:00Z",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                Day,
                "Europe/Berlin",
                "2026-10-25T00:30:00Z",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
            ),
            // In Beirut, the clock went from 00:00 to 01:00 on 2022-03-27: the day began at 01:00.
            (
                Day,
                "Asia/Beirut",
                "2022-03-27T10:00:00Z",
                "2022-03-26T22:00:00Z",
                "2022-03-27T21:00:00Z",
            ),
            (Week, "UTC", "2026-11-22T10:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            (Week, "UTC", "2026-11-16T00:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            (
                Month,
                "America/New_York",
                "2026-03-01T04:59:59Z",
                "2026-02-01T05:00:00Z",
                "2026-03-01T05:00:00Z",
            ),
            // The clock changes within the month.
            (
                Month,
                "America/New_York",
                "2026-03-20T00:00:00Z",
                "2026-03-01T05:00:00Z",
                "2026-04-01T04:00:00Z",
            ),
        ] {
            let time = |text: &str| text.parse::<Timestamp>().unwrap();
            let period = window_at(window, &parse_time_zone(tz).unwrap(), time(now)).unwrap();
            assert_eq!(period, CapWindowRange { start: time(start), end: time(end) }, "{tz} {now}");
            assert!(period.start <= time(now) && time(now) < period.end, "{tz} {now}");
        }
    }

    #[test]
    fn duplicate_caps_and_unknown_time_zones_are_errors() {
        let cap = |limit, tz: &str| SpendCap {
            window: CapWindowLength::Day,
            tz: tz.to_owned(),
            per: CapUsageGrouping::All,
            pattern: None,
            unit: CapUnit::Usd,
            limit,
            at_cap: CapReachedAction::Wait,
        };
        let error = SpendCaps::new(vec![cap(1, "UTC"), cap(2, "UTC")]).unwrap_err();
        assert!(error.contains("`day-usd-all`"), "{error}");
        let error = SpendCaps::new(vec![cap(1, "Berlin")]).unwrap_err();
        assert!(error.contains("`Berlin`"), "{error}");
        assert!(SpendCaps::new(vec![cap(1, "UTC"), cap(2, "Europe/Berlin")]).is_ok());
    }
}
