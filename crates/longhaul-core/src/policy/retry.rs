//! Retry delays and time limits of attempts, as pure functions.
//!
//! The jitter of model requests is derived from the run's id. The jitter of runs is an argument. The
//! chosen delays are journaled, so a replay sees the same delays.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureClass};
use crate::id::RunId;
use crate::time::Millis;

/// Soft timeout of one attempt of a handler or of a run that an event started, unless it is set.
pub const DEFAULT_SOFT_TIMEOUT: Millis = Millis::from_secs(2 * 60);

/// Hard timeout of one attempt of a handler or of a run that an event started, unless it is set.
pub const DEFAULT_HARD_TIMEOUT: Millis = Millis::from_secs(5 * 60);

/// Settings for retrying a run after transient failures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// Maximum number of retries of a run.
    pub max_retries: u32,
    /// Delay before the first retry.
    pub initial_delay: Millis,
    /// Maximum delay before a retry.
    pub max_delay: Millis,
    /// Factor by which the delay grows with each retry, in percent: 200 doubles it.
    pub multiplier_percent: u32,
    /// Active time after which an attempt is reported as overdue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_timeout: Option<Millis>,
    /// Active time after which an attempt is aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_timeout: Option<Millis>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 1,
            initial_delay: Millis::from_secs(1),
            max_delay: Millis::from_secs(5),
            multiplier_percent: 200,
            soft_timeout: None,
            hard_timeout: None,
        }
    }
}

impl RetryPolicy {
    /// Returns the delay before the attempt that follows `attempt`. `None` means that no further
    /// attempt is made.
    pub fn delay_after(&self, attempt: u32) -> Option<Millis> {
        if attempt == 0 || attempt > self.max_retries {
            return None;
        }
        let grown = (1..attempt).fold(self.initial_delay.0, |delay, _| {
            (delay.saturating_mul(u64::from(self.multiplier_percent)) / 100).min(self.max_delay.0)
        });
        Some(Millis(grown.min(self.max_delay.0)))
    }

    /// Returns the delay before the attempt that follows `attempt`, changed by up to a quarter: it is
    /// longer, or shorter if it would otherwise exceed the maximum delay. `random` selects the change;
    /// 0 means no change. `None` means that no further attempt is made.
    pub fn jittered_delay_after(&self, attempt: u32, random: u64) -> Option<Millis> {
        let delay = self.delay_after(attempt)?;
        let jitter = Millis(random % (delay.0 / 4).max(1));
        let longer = delay.plus(jitter);
        Some(if longer <= self.max_delay { longer } else { delay.minus(jitter) })
    }
}

/// Maximum number of model requests per turn in one attempt of a run, including the first.
pub const CALL_ATTEMPTS_MAX: u32 = 4;

/// Returns the delay before a model request is retried: 2, 4 or 8 seconds plus up to a quarter of
/// jitter, but at least the delay that the provider asked for. `None` means that the request is not
/// retried.
pub fn model_retry_delay(run: RunId, failures: u32, failure: &Failure) -> Option<Millis> {
    if !failure.class.is_transient() || failures == 0 || failures >= CALL_ATTEMPTS_MAX {
        return None;
    }
    // A handler is no provider: only its run is retried, as its retry settings say.
    if failure.class == FailureClass::HandlerFailedTransiently {
        return None;
    }
    let base = 2_000_u64 << (failures - 1);
    // The low bits of a run id are practically random and never change.
    let spread = (run.bits() >> (failures * 8)) as u64 % (base / 4);
    let min_delay = failure.retry_after.unwrap_or(Millis::ZERO);
    Some(Millis((base + spread).max(min_delay.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_maximum_with_up_to_a_quarter_of_jitter() {
        let policy = RetryPolicy { max_retries: 4, ..RetryPolicy::default() };
        for (attempt, delay, range) in [
            (1, Some(1_000), 1_000..1_250),
            (2, Some(2_000), 2_000..2_500),
            (3, Some(4_000), 4_000..5_000),
            (4, Some(5_000), 3_751..5_001),
            (5, None, 0..0),
        ] {
            assert_eq!(policy.delay_after(attempt), delay.map(Millis));
            assert_eq!(policy.jittered_delay_after(attempt, 0), delay.map(Millis));
            for random in [1, 77, 999, 12_345, u64::MAX] {
                let jittered = policy.jittered_delay_after(attempt, random);
                assert!(
                    jittered.is_none_or(|jittered| range.contains(&jittered.0)),
                    "{jittered:?}"
                );
                assert_eq!(jittered.is_some(), delay.is_some());
            }
        }
        let none = RetryPolicy { initial_delay: Millis::ZERO, ..RetryPolicy::default() };
        assert_eq!(none.jittered_delay_after(1, 77), Some(Millis::ZERO));
    }

    #[test]
    fn only_requests_to_providers_are_retried_by_themselves() {
        let delay = |class| model_retry_delay(RunId::from_bits(7), 1, &Failure::new(class, "x"));
        assert!(delay(FailureClass::Network).is_some());
        assert!(delay(FailureClass::HandlerFailedTransiently).is_none());
        assert!(delay(FailureClass::Auth).is_none());
    }
}
