//! Retry delays and time limits of attempts, as pure functions.
//!
//! The jitter of model requests is derived from the run's id. The jitter of runs is an argument. The
//! chosen delays are journaled, so a replay sees the same delays.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureClass};
use crate::id::RunId;
use crate::time::Millis;

/// Default soft timeout (after which an attempt is reported as overdue) for runs of handlers (Rust
/// functions that are registered as agents) and for runs that an event started.
pub const DEFAULT_SOFT_TIMEOUT: Millis = Millis::from_secs(2 * 60);

/// Default hard timeout (after which an attempt is aborted) for runs of handlers (Rust functions
/// that are registered as agents), runs that an event started and grading runs.
pub const DEFAULT_HARD_TIMEOUT: Millis = Millis::from_secs(5 * 60);

/// Default maximum time for which a run waits for a model provider that is unavailable.
pub const DEFAULT_OUTAGE: Millis = Millis::from_secs(6 * 60 * 60);

const fn is_default_outage(outage: &Millis) -> bool {
    outage.0 == DEFAULT_OUTAGE.0
}

/// Settings for retrying a run after transient failures.
#[serde_with::skip_serializing_none]
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
    /// Active time (without waits) after which an attempt is reported as overdue. `None` means
    /// never.
    pub soft_timeout: Option<Millis>,
    /// Active time (without waits) after which an attempt is aborted. `None` means never.
    pub hard_timeout: Option<Millis>,
    /// How long a run waits for a provider that is unavailable, after the quick retries of a request.
    /// Zero means that the run does not wait.
    #[serde(skip_serializing_if = "is_default_outage")]
    pub outage: Millis,
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
            outage: DEFAULT_OUTAGE,
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
        let delay = (1..attempt).fold(self.initial_delay.0, |delay, _| {
            (delay.saturating_mul(u64::from(self.multiplier_percent)) / 100).min(self.max_delay.0)
        });
        Some(Millis(delay.min(self.max_delay.0)))
    }

    /// Returns the delay before the attempt that follows `attempt`, changed by up to a quarter: it is
    /// longer, or shorter if it would otherwise exceed the maximum delay. `random` selects the change;
    /// 0 means no change. `None` means that no further attempt is made.
    pub fn jittered_delay_after(&self, attempt: u32, random: u64) -> Option<Millis> {
        let delay = self.delay_after(attempt)?;
        let jitter = Millis(random % (delay.0 / 4).max(1));
        let longer_delay = delay.plus(jitter);
        Some(if longer_delay <= self.max_delay { longer_delay } else { delay.minus(jitter) })
    }
}

/// Maximum number of model requests per turn in one attempt of a run, including the first.
pub const CALL_ATTEMPTS_MAX: u32 = 4;

/// Delay before the first repeated request to an unavailable provider. It doubles with each further
/// request.
const OUTAGE_DELAY_MIN: Millis = Millis::from_secs(16);

/// Maximum delay between two requests to a provider that is unavailable: 10 minutes with the jitter.
const OUTAGE_DELAY_MAX: Millis = Millis::from_secs(10 * 60).minus(JITTER_MAX);

/// Maximum jitter, i.e. pseudo-random time that is added to a delay.
const JITTER_MAX: Millis = Millis::from_secs(30);

/// Returns the delay before a model request is retried: 2, 4 or 8 seconds, or the longer delay that
/// the provider asked for, plus jitter. `None` means that the request is not retried.
pub fn model_retry_delay(run: RunId, failures: u32, failure: &Failure) -> Option<Millis> {
    if !failure.class.is_transient() || failures == 0 || failures >= CALL_ATTEMPTS_MAX {
        return None;
    }
    // A handler is no provider: only its run is retried, as its retry settings say.
    if failure.class == FailureClass::HandlerFailedTransiently {
        return None;
    }
    let base = Millis(2_000 << (failures - 1));
    Some(with_jitter(base.max(failure.retry_after.unwrap_or_default()), run, failures))
}

/// Returns the delay before the next request to a provider that is unavailable, after this number of
/// such delays: 16 seconds, doubled each time up to 10 minutes, or the longer delay that the provider
/// asked for, plus jitter.
pub fn provider_outage_delay(run: RunId, earlier_delays: u32, failure: &Failure) -> Millis {
    let base = Millis(OUTAGE_DELAY_MIN.0 << earlier_delays.min(16)).min(OUTAGE_DELAY_MAX);
    with_jitter(base.max(failure.retry_after.unwrap_or_default()), run, earlier_delays)
}

/// Returns the delay plus a pseudo-random time of up to a quarter of it, at most 30 seconds, so
/// that runs that failed together don't send their next requests together.
pub fn with_jitter(delay: Millis, run: RunId, retry_count: u32) -> Millis {
    // The low bits of a run id are practically random and never change.
    let random = (run.bits() >> (retry_count % 8 * 8)) as u64;
    let range = (delay.0 / 4).min(JITTER_MAX.0);
    delay.plus(Millis(random.checked_rem(range).unwrap_or_default()))
}

/// Returns whether a failure means that the provider is unavailable for now: it limits requests, is
/// overloaded, does not answer in time or can't be reached.
pub const fn is_provider_unavailable(failure: &Failure) -> bool {
    match failure.class {
        FailureClass::RateLimit
        | FailureClass::Overloaded
        | FailureClass::Timeout
        | FailureClass::Network => true,
        // A proxy answered because the provider behind it did not.
        FailureClass::Server => matches!(failure.status, Some(502 | 520..=523)),
        FailureClass::ContextOverflow
        | FailureClass::Auth
        | FailureClass::InvalidRequest
        | FailureClass::Refused
        | FailureClass::Quota
        | FailureClass::Lost
        | FailureClass::Stopped
        | FailureClass::HandlerFailed
        | FailureClass::HandlerFailedTransiently => false,
    }
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
        let no_delay = RetryPolicy { initial_delay: Millis::ZERO, ..RetryPolicy::default() };
        assert_eq!(no_delay.jittered_delay_after(1, 77), Some(Millis::ZERO));
    }

    #[test]
    fn only_transient_provider_failures_are_retried() {
        let delay = |class| model_retry_delay(RunId::from_bits(7), 1, &Failure::new(class, "x"));
        assert!(delay(FailureClass::Network).is_some());
        assert!(delay(FailureClass::HandlerFailedTransiently).is_none());
        assert!(delay(FailureClass::Auth).is_none());
    }

    #[test]
    fn jitter_spreads_retries_after_the_delay_that_the_provider_asked_for() {
        let failure = |secs| Failure {
            retry_after: Some(Millis::from_secs(secs)),
            ..Failure::new(FailureClass::RateLimit, "x")
        };
        let run =
            |n: u128| RunId::from_bits(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        for (secs, jitter_max) in [(40, 10_000), (3_600, 30_000), (u64::MAX, 30_000)] {
            let minimum = Millis::from_secs(secs);
            let delays: Vec<_> = (1..=100)
                .filter_map(|n| model_retry_delay(run(n), 1, &failure(secs)))
                .chain((1..=100).map(|n| provider_outage_delay(run(n), 0, &failure(secs))))
                .collect();
            assert!(delays.iter().all(|delay| *delay >= minimum));
            assert!(delays.iter().all(|delay| *delay <= minimum.plus(Millis(jitter_max))));
            let distinct_delays: std::collections::BTreeSet<_> = delays.iter().collect();
            assert!(
                distinct_delays.len() > 150 || minimum.0 > u64::MAX / 2,
                "{secs}: {}",
                distinct_delays.len()
            );
        }
    }

    #[test]
    fn waits_for_an_unavailable_provider_grow_to_ten_minutes() {
        let failure = Failure::new(FailureClass::Overloaded, "x");
        let ranges = [16, 32, 64, 128, 256, 512, 570, 570].map(|secs: u64| {
            let base = secs * 1_000;
            base..base + (base / 4).min(30_000)
        });
        for (delay_count, range) in (0..).zip(ranges) {
            let delay =
                provider_outage_delay(RunId::from_bits(u128::MAX / 7), delay_count, &failure);
            assert!(range.contains(&delay.0), "{delay_count}: {delay:?}");
        }
        assert!(
            provider_outage_delay(RunId::from_bits(1), u32::MAX, &failure)
                <= Millis::from_secs(600)
        );
    }
}
