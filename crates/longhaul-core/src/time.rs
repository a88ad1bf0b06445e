//! Timestamps and durations, and the trait of clocks.
//!
//! Nothing here reads a clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::openapi;
use crate::text_macros::{debug_as_display, inline_schema, serde_as_text};

/// A point in time, in microseconds since 1970 UTC. Its text form is RFC 3339 with
/// exactly six decimals, so it sorts as text.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from microseconds since 1970 UTC.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970 UTC.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the milliseconds since 1970 UTC. Earlier times become 0.
    pub const fn as_millis(self) -> u64 {
        if self.0 < 0 { 0 } else { self.0 as u64 / 1_000 }
    }

    /// Returns the time after a duration. Saturates at the last representable time.
    pub const fn plus(self, duration: Millis) -> Self {
        let micros = duration.0.saturating_mul(1_000);
        let micros = if micros > i64::MAX as u64 { i64::MAX } else { micros as i64 };
        Self(self.0.saturating_add(micros))
    }

    /// Returns whether both times are at most this duration apart, whichever is earlier.
    pub const fn is_within(self, duration: Millis, other: Self) -> bool {
        self.0.abs_diff(other.0) <= duration.0.saturating_mul(1_000)
    }

    /// Returns the duration since `earlier`, or 0 if `earlier` is the later time.
    pub const fn duration_since(self, earlier: Self) -> Millis {
        let micros = self.0.saturating_sub(earlier.0);
        Millis(if micros < 0 { 0 } else { micros as u64 / 1_000 })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            // RFC 3339 ends with the year 9999. Later times are written as a number.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        // Number that `Display` writes for times outside of RFC 3339.
        let micros = text.strip_suffix("us").map(str::parse);
        if let Some(Ok(micros)) = micros {
            return Ok(Self(micros));
        }
        text.parse::<jiff::Timestamp>().map(|at| Self(at.as_microsecond()))
    }
}

debug_as_display!(Timestamp);
serde_as_text!(Timestamp);
inline_schema!(Timestamp, openapi::timestamp());

/// A duration in milliseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Millis(pub u64);

impl Millis {
    /// Duration of zero milliseconds.
    pub const ZERO: Self = Self(0);

    /// Creates a duration from seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// Returns the sum of both durations.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference of both durations, or 0 if `other` is longer.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for Duration {
    fn from(duration: Millis) -> Self {
        Self::from_millis(duration.0)
    }
}

/// Interface to the wall clock and the monotonic clock.
///
/// The wall clock may be set back or forward at any moment. It is therefore only compared with
/// stored times, at least once a second. There is no sleep until a point in time: every wait is a
/// duration of the monotonic clock.
#[async_trait]
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time of the wall clock.
    fn now(&self) -> Timestamp;

    /// Waits for a duration, measured by the monotonic clock.
    async fn sleep(&self, duration: Millis);

    /// Returns the time of the monotonic clock, as a duration since an arbitrary moment.
    fn monotonic_time(&self) -> Millis {
        Millis(self.monotonic_nanos() / 1_000_000)
    }

    /// Returns the time of the monotonic clock in nanoseconds. The default implementation reads the
    /// wall clock, which is only correct for clocks that are never set back.
    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.now().as_micros()).unwrap_or_default().saturating_mul(1_000)
    }
}
