//! A simulated clock that moves only when a test moves it.

use async_trait::async_trait;
use tokio::sync::watch;

use longhaul_core::time::{Clock, Millis, Timestamp};

/// Default start time of a simulated clock: 2026-01-01T00:00:00Z.
pub const SIM_START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// A wall clock and a monotonic clock that a test controls. Cheap to clone; clones share state.
#[derive(Debug, Clone)]
pub struct SimClock {
    times: watch::Sender<Times>,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    wall: Timestamp,
    /// Monotonic clock: the wall clock without the effect of [`SimClock::set`].
    monotonic: Timestamp,
}

impl SimClock {
    /// Creates a clock that is stopped at [`SIM_START`].
    pub fn new() -> Self {
        Self::at(SIM_START)
    }

    /// Creates a clock that is stopped at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self { times: watch::Sender::new(Times { wall: start, monotonic: start }) }
    }

    /// Advances both clocks, wakes the sleepers whose time has come, and returns the new wall
    /// time.
    pub fn advance(&self, duration: Millis) -> Timestamp {
        self.times.send_modify(|times| {
            times.wall = times.wall.plus(duration);
            times.monotonic = times.monotonic.plus(duration);
        });
        self.now()
    }

    /// Sets the wall clock, as an operator or NTP does. The monotonic clock does not change.
    pub fn set(&self, wall: Timestamp) {
        self.times.send_modify(|times| times.wall = wall);
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
        self.times.borrow().wall
    }

    async fn sleep(&self, duration: Millis) {
        let mut times = self.times.subscribe();
        let deadline = times.borrow().monotonic.plus(duration);
        // An error means that the sender is dropped, which is impossible here: `self` is
        // borrowed.
        let _ = times.wait_for(|times| times.monotonic >= deadline).await;
    }

    fn monotonic_nanos(&self) -> u64 {
        let micros = self.times.borrow().monotonic.as_micros();
        u64::try_from(micros).unwrap_or_default() * 1_000
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
        let mut sleep = Box::pin(sleeper.sleep(Millis(10)));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Millis(9));
        assert!((&mut sleep).now_or_never().is_none());
        assert_eq!(clock.advance(Millis(1)), SIM_START.plus(Millis(10)));
        assert!((&mut sleep).now_or_never().is_some());
    }

    #[tokio::test]
    async fn setting_the_wall_clock_neither_wakes_nor_delays_a_sleeper() {
        let clock = SimClock::new();
        let sleeper = clock.clone();
        let mut sleep = Box::pin(sleeper.sleep(Millis(10)));
        assert!((&mut sleep).now_or_never().is_none());
        clock.set(SIM_START.plus(Millis::from_secs(3_600)));
        assert!((&mut sleep).now_or_never().is_none());
        clock.set(Timestamp::default());
        clock.advance(Millis(10));
        assert!((&mut sleep).now_or_never().is_some());
        assert_eq!(clock.now(), Timestamp::default().plus(Millis(10)));
    }

    #[tokio::test]
    async fn a_zero_sleep_returns_at_once() {
        let clock = SimClock::new();
        assert_eq!(clock.sleep(Millis::ZERO).now_or_never(), Some(()));
        assert_eq!(clock.now(), SIM_START);
    }
}
