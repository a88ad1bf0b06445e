//! Keeps a run that crashes its worker process from doing so forever.
//!
//! When a worker process dies, a crash is counted for every run that it drove, so a crash alone does
//! not show which run caused it. The last two attempts before a run is blocked are therefore trials:
//! no other run that has crashed before is driven until the run on trial makes progress. A run that
//! crashed only together with such runs is never blocked. The second trial of a run starts after the
//! first trials of others, so that kills from outside, which hit any run on trial, first have to hit
//! all of them. Runs that have never crashed do not wait, because that would stop all work: a run is
//! blocked wrongly if two of them kill the process during its trials.
//!
//! A run that waits leaves its drive permit to another run, so every crash of the process would claim
//! all waiting runs again. Therefore only a few do so, and further ones keep their drive permits.

use std::sync::Arc;

use longhaul_core::time::Millis;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total number of permits of a crash limiter. A run that has crashed before holds one permit, and a
/// run on trial holds all of them.
const PERMITS: u32 = 1 << 16;

/// Number of attempts before a run is blocked in which no other run that has crashed is driven.
const TRIALS: u32 = 2;

/// Delay before the last trial of a run. The other runs on trial ask for their permits meanwhile.
const LAST_TRIAL_DELAY: Millis = Millis::from_secs(2);

/// Maximum number of runs that wait for permits without a drive permit.
const QUEUE_MAX: usize = 16;

/// Limits how often a run may crash its worker, shared by all drivers of a worker.
#[derive(Debug, Clone)]
pub struct RunCrashLimiter {
    /// Number of crashes after which a run is blocked. `None` means no limit.
    limit: Option<u32>,
    /// Permits for runs that have crashed before. The semaphore is fair, so a run that waits for
    /// all permits is not overtaken.
    permits: Arc<Semaphore>,
    /// Places of runs that wait for permits without a drive permit.
    queue: Arc<Semaphore>,
}

/// Permits that a run holds while it is driven again after a crash. They limit how many such runs
/// are driven at the same time.
pub(crate) type TrialPermits = OwnedSemaphorePermit;

/// Whether a run may be driven, depending on how often it has crashed its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunAdmission {
    /// The run may start at once: it has not crashed its worker since it last made progress, or the
    /// number of crashes has no limit.
    Free,
    /// The run has crashed its worker. After this delay it may start when it has acquired this
    /// number of permits.
    Trial { permits: u32, delay: Millis },
    /// The run has crashed its worker too often and may not start any more.
    Blocked,
}

impl RunCrashLimiter {
    /// Creates a limiter that blocks a run after `crash_limit` crashes at the same point.
    pub fn new(crash_limit: Option<u32>) -> Self {
        Self {
            limit: crash_limit.filter(|crash_limit| *crash_limit > 0),
            permits: Arc::new(Semaphore::new(PERMITS as usize)),
            queue: Arc::new(Semaphore::new(QUEUE_MAX)),
        }
    }

    pub(crate) fn admission_after_crashes(&self, crash_count: u32) -> RunAdmission {
        match self.limit {
            Some(limit) if crash_count >= limit => RunAdmission::Blocked,
            Some(limit) if crash_count > 0 && crash_count + TRIALS >= limit => {
                let is_last = crash_count + 1 == limit;
                let delay = if is_last { LAST_TRIAL_DELAY } else { Millis::ZERO };
                RunAdmission::Trial { permits: PERMITS, delay }
            }
            Some(_) if crash_count > 0 => RunAdmission::Trial { permits: 1, delay: Millis::ZERO },
            Some(_) | None => RunAdmission::Free,
        }
    }

    /// Acquires permits for a run that has crashed before. `None` if not enough permits are free
    /// now.
    pub(crate) fn try_acquire_permits(&self, permit_count: u32) -> Option<TrialPermits> {
        let all = Arc::clone(&self.permits);
        all.try_acquire_many_owned(permit_count).ok()
    }

    /// Waits for a place in the queue of runs that wait for permits without a drive permit.
    pub(crate) async fn wait_for_queue_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queue).acquire_owned().await.ok()
    }

    /// Waits for the permits of a run that has crashed before. `None` if the crash limiter's
    /// semaphore is closed.
    pub(crate) async fn acquire_permits(&self, permit_count: u32) -> Option<TrialPermits> {
        let all = Arc::clone(&self.permits);
        all.acquire_many_owned(permit_count).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: RunAdmission = RunAdmission::Trial { permits: 1, delay: Millis::ZERO };
    const FIRST_TRIAL: RunAdmission = RunAdmission::Trial { permits: PERMITS, delay: Millis::ZERO };
    const LAST_TRIAL: RunAdmission =
        RunAdmission::Trial { permits: PERMITS, delay: LAST_TRIAL_DELAY };

    #[test]
    fn the_last_two_attempts_before_the_crash_limit_are_trials() {
        use RunAdmission::{Blocked, Free};
        let admission =
            |limit, crashes| RunCrashLimiter::new(limit).admission_after_crashes(crashes);
        for (limit, expected) in [
            (5, [Free, SHARED, SHARED, FIRST_TRIAL, LAST_TRIAL, Blocked]),
            (4, [Free, SHARED, FIRST_TRIAL, LAST_TRIAL, Blocked, Blocked]),
            (3, [Free, FIRST_TRIAL, LAST_TRIAL, Blocked, Blocked, Blocked]),
            (2, [Free, LAST_TRIAL, Blocked, Blocked, Blocked, Blocked]),
            (1, [Free, Blocked, Blocked, Blocked, Blocked, Blocked]),
        ] {
            let admissions = [0, 1, 2, 3, 4, 5].map(|crashes| admission(Some(limit), crashes));
            assert_eq!(admissions, expected, "limit {limit}");
        }
        for limit in [None, Some(0)] {
            assert_eq!(admission(limit, 1_000), RunAdmission::Free);
        }
    }

    #[tokio::test]
    async fn an_exclusive_attempt_excludes_other_crashed_runs() {
        let limiter = RunCrashLimiter::new(Some(3));
        let (first, second) = (limiter.try_acquire_permits(1), limiter.try_acquire_permits(1));
        assert!(first.is_some() && second.is_some(), "both runs start");
        assert!(limiter.try_acquire_permits(PERMITS).is_none());
        let mut waiting = std::pin::pin!(limiter.acquire_permits(PERMITS));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // A later request does not overtake it.
        assert!(limiter.try_acquire_permits(1).is_none());
        drop((first, second));
        let all_permits = waiting.await;
        assert!(all_permits.is_some() && limiter.try_acquire_permits(1).is_none());
        drop(all_permits);
        assert!(limiter.try_acquire_permits(1).is_some());
    }
}
