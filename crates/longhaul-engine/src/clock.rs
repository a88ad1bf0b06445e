//! The system clock: the only code that reads the real time. All other code receives a [`Clock`].

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use longhaul_core::time::{Clock, Millis, Timestamp};

/// Clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Whether the wall clock shows a time before 1970. In that case [`Clock::now`] returns the
    /// beginning of 1970.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    pub fn is_before_1970(self) -> bool {
        SystemTime::now() < UNIX_EPOCH
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        // A wall clock before 1970 is reported as 1970.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    async fn sleep(&self, duration: Millis) {
        tokio::time::sleep(duration.into()).await;
    }

    fn monotonic_nanos(&self) -> u64 {
        static STARTED: OnceLock<Stopwatch> = OnceLock::new();
        STARTED.get_or_init(Stopwatch::start).elapsed_nanos()
    }
}

/// Stopwatch on the monotonic clock of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the monotonic clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the number of nanoseconds since the stopwatch was started.
    pub fn elapsed_nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_lasts_at_least_its_duration() {
        let started = SystemClock.monotonic_nanos();
        SystemClock.sleep(Millis(2)).await;
        assert!(SystemClock.monotonic_nanos() - started >= 2_000_000);
    }

    #[test]
    fn a_stopwatch_is_monotonic() {
        let watch = Stopwatch::start();
        let first = watch.elapsed_nanos();
        assert!(watch.elapsed_nanos() >= first);
    }
}
