//! Points in time and spans of it, and the port through which time is read.
//!
//! Never: reads a clock itself.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::text_macros::{debug_as_display, serde_as_text};

/// A point in time, in microseconds since 1970, UTC. Its text is RFC 3339 with
/// exactly six decimals, so it sorts as text.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point this many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since 1970; what stood before is 0.
    pub const fn as_millis(self) -> u64 {
        if self.0 < 0 { 0 } else { self.0 as u64 / 1_000 }
    }

    /// The point `span` later, or the last one there is.
    pub const fn plus(self, span: Millis) -> Self {
        let micros = span.0.saturating_mul(1_000);
        let micros = if micros > i64::MAX as u64 { i64::MAX } else { micros as i64 };
        Self(self.0.saturating_add(micros))
    }

    /// Whether both points are at most `span` apart, whichever is the later one.
    pub const fn is_within(self, span: Millis, other: Self) -> bool {
        self.0.abs_diff(other.0) <= span.0.saturating_mul(1_000)
    }

    /// The span since `earlier`, 0 when that is later.
    pub const fn since(self, earlier: Self) -> Millis {
        let micros = self.0.saturating_sub(earlier.0);
        Millis(if micros < 0 { 0 } else { micros as u64 / 1_000 })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            // Beyond the year 9999 there is no RFC 3339; the number still says it.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        // What `Display` says of a point that RFC 3339 has no words for.
        let micros = text.strip_suffix("us").map(str::parse);
        if let Some(Ok(micros)) = micros {
            return Ok(Self(micros));
        }
        text.parse::<jiff::Timestamp>().map(|at| Self(at.as_microsecond()))
    }
}

debug_as_display!(Timestamp);
serde_as_text!(Timestamp);

/// A span of time in milliseconds.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// This many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// Both spans together.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This span without `other`, 0 when that is longer.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Millis {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for Duration {
    fn from(span: Millis) -> Self {
        Self::from_millis(span.0)
    }
}

/// The wall clock and the monotonic clock.
///
/// The wall clock may be set back or forward at any moment, so it is only compared
/// with stored points in time, at least once a second. There is no sleep until a
/// point in time: every wait is a span of the monotonic clock.
#[async_trait]
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time of the wall clock.
    fn now(&self) -> Timestamp;

    /// Returns after `span`, measured by the monotonic clock.
    async fn sleep(&self, span: Millis);

    /// The monotonic clock, as a span since an arbitrary moment.
    fn monotonic(&self) -> Millis {
        Millis(self.monotonic_nanos() / 1_000_000)
    }

    /// The monotonic clock in nanoseconds. The default reads the wall clock and is
    /// for clocks that are never set back.
    fn monotonic_nanos(&self) -> u64 {
        u64::try_from(self.now().as_micros()).unwrap_or_default().saturating_mul(1_000)
    }
}
