//! A clock that moves only when somebody moves it.
//!
//! Never: reads the time of the machine, and never moves by itself.

use async_trait::async_trait;
use tokio::sync::watch;

use longhaul_core::time::{Clock, Millis, Timestamp};

/// Where a simulated clock begins: the first moment of 2026.
pub const SIM_START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A clock in the hands of a test. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct SimClock {
    time: watch::Sender<Timestamp>,
}

impl SimClock {
    /// A clock that stands at [`SIM_START`].
    pub fn new() -> Self {
        Self::at(SIM_START)
    }

    /// A clock that stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self {
            time: watch::Sender::new(start),
        }
    }

    /// Lets time pass, wakes whoever slept for it, and says what time it is.
    pub fn advance(&self, span: Millis) -> Timestamp {
        self.time.send_modify(|time| *time = time.plus(span));
        self.now()
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        *self.time.borrow()
    }

    async fn sleep_until(&self, at: Timestamp) {
        let mut time = self.time.subscribe();
        // An error says that the clock is gone; but this clock is borrowed here.
        let _ = time.wait_for(|now| *now >= at).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn sleepers_wake_when_their_time_has_come_and_not_before() {
        let clock = SimClock::new();
        let sleeper = clock.clone();
        let mut nap = Box::pin(sleeper.sleep_until(SIM_START.plus(Millis(10))));
        assert!((&mut nap).now_or_never().is_none());
        clock.advance(Millis(9));
        assert!((&mut nap).now_or_never().is_none());
        assert_eq!(clock.advance(Millis(1)), SIM_START.plus(Millis(10)));
        assert!((&mut nap).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_time_that_has_passed_is_not_waited_for() {
        SimClock::new().sleep_until(SIM_START).await;
    }
}
