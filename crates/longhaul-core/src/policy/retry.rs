//! When to try again, as a pure function of how often it was tried.
//!
//! Never: sleeps, and never draws its jitter: that comes from the run's id, so
//! a replay waits as long as the first time.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::id::RunId;
use crate::time::Millis;

/// How a run is tried again after a failure that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// So many further attempts.
    pub max_retries: u32,
    /// Before the first of them.
    pub initial_delay: Millis,
    /// Never longer.
    pub max_delay: Millis,
    /// Longer by this factor each time, in hundredths.
    pub multiplier_percent: u32,
    /// After this much active time an attempt is called overdue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_timeout: Option<Millis>,
    /// After this much active time an attempt ends.
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
    /// How long to wait before attempt `attempt + 1`; none: there is no further one.
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

/// A model is asked so often in one attempt of a run, the first time included.
pub const CALL_ATTEMPTS_MAX: u32 = 4;

/// How long to wait before a model is asked again: 2, 4, 8 seconds with a
/// quarter of jitter, and never less than the provider asked for. None: it is
/// not asked again.
pub fn call_delay(run: RunId, failures: u32, failure: &Failure) -> Option<Millis> {
    if !failure.class.is_transient() || failures == 0 || failures >= CALL_ATTEMPTS_MAX {
        return None;
    }
    let base = 2_000_u64 << (failures - 1);
    // The low bits of a run's id are as good as random and never change.
    let spread = (run.bits() >> (failures * 8)) as u64 % (base / 4);
    let floor = failure.retry_after.unwrap_or(Millis::ZERO);
    Some(Millis((base + spread).max(floor.0)))
}
