//! Retry delays, as pure functions of the number of attempts.
//!
//! The jitter is derived from the run's id, so a replay computes the same delays.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::RunId;
use crate::time::Millis;

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
    let base = 2_000_u64 << (failures - 1);
    // The low bits of a run id are practically random and never change.
    let spread = (run.bits() >> (failures * 8)) as u64 % (base / 4);
    let min_delay = failure.retry_after.unwrap_or(Millis::ZERO);
    Some(Millis((base + spread).max(min_delay.0)))
}
