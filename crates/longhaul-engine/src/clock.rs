//! The machine's clock: the one place where the time is really read.
//!
//! Never: anybody else's business. Everyone else is handed a clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use longhaul_core::time::{Clock, Millis, Timestamp};

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Whether the wall clock is before 1970: [`Clock::now`] says 1970 then.
    #[expect(clippy::disallowed_methods, reason = "this is where the time comes from")]
    pub fn is_before_1970(self) -> bool {
        SystemTime::now() < UNIX_EPOCH
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where the time comes from")]
    fn now(&self) -> Timestamp {
        // A machine that stands before 1970 has no better time to give.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    async fn sleep(&self, span: Millis) {
        tokio::time::sleep(span.into()).await;
    }

    fn monotonic_nanos(&self) -> u64 {
        static STARTED: OnceLock<Stopwatch> = OnceLock::new();
        STARTED.get_or_init(Stopwatch::start).nanos()
    }
}

/// Measures spans; it never goes backwards.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is where spans come from")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_lasts_at_least_its_duration() {
        let begun = SystemClock.monotonic_nanos();
        SystemClock.sleep(Millis(2)).await;
        assert!(SystemClock.monotonic_nanos() - begun >= 2_000_000);
    }

    #[test]
    fn a_stopwatch_is_monotonic() {
        let watch = Stopwatch::start();
        let first = watch.nanos();
        assert!(watch.nanos() >= first);
    }
}
