//! Keeps a run that crashes its worker process from doing so forever.
//!
//! When a worker process dies, a crash is counted for every run that it drove. The last attempt
//! before a run is blocked is therefore a trial: no other run that has crashed before is driven
//! until the run on trial makes progress. Runs that have never crashed do not wait: if one of them
//! kills the process during a trial, the run on trial is blocked.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total number of permits of a crash limiter. A run that has crashed before holds one permit, and a
/// run on its last attempt holds all of them.
const PERMITS: u32 = 1 << 16;

/// Limits how often a run may crash its worker, shared by all drivers of a worker.
#[derive(Debug, Clone)]
pub struct RunCrashLimiter {
    /// Number of crashes after which a run is blocked. `None` means no limit.
    limit: Option<u32>,
    /// Permits for runs that have crashed before. The semaphore is fair, so a run that waits for
    /// all permits is not overtaken.
    permits: Arc<Semaphore>,
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
    /// The run has crashed its worker and may start when it has acquired this number of permits.
    Trial { permits: u32 },
    /// The run has crashed its worker too often and may not start any more.
    Blocked,
}

impl RunCrashLimiter {
    /// Creates a limiter that blocks a run after `crash_limit` crashes at the same point.
    pub fn new(crash_limit: Option<u32>) -> Self {
        Self {
            limit: crash_limit.filter(|crash_limit| *crash_limit > 0),
            permits: Arc::new(Semaphore::new(PERMITS as usize)),
        }
    }

    pub(crate) fn admission_after_crashes(&self, crash_count: u32) -> RunAdmission {
        match self.limit {
            Some(limit) if crash_count >= limit => RunAdmission::Blocked,
            Some(limit) if crash_count > 0 && crash_count + 1 == limit => {
                RunAdmission::Trial { permits: PERMITS }
            }
            Some(_) if crash_count > 0 => RunAdmission::Trial { permits: 1 },
            Some(_) | None => RunAdmission::Free,
        }
    }

    /// Acquires permits for a run that has crashed before. `None` if not enough permits are free
    /// now.
    pub(crate) fn try_acquire_permits(&self, permit_count: u32) -> Option<TrialPermits> {
        let all = Arc::clone(&self.permits);
        all.try_acquire_many_owned(permit_count).ok()
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

    const EXCLUSIVE_TRIAL: RunAdmission = RunAdmission::Trial { permits: PERMITS };
    const SHARED_TRIAL: RunAdmission = RunAdmission::Trial { permits: 1 };

    #[test]
    fn the_last_attempt_before_the_crash_limit_runs_alone() {
        let admission =
            |limit, crashes| RunCrashLimiter::new(limit).admission_after_crashes(crashes);
        let admissions: Vec<RunAdmission> =
            (0..5).map(|crashes| admission(Some(3), crashes)).collect();
        assert_eq!(
            admissions,
            [
                RunAdmission::Free,
                SHARED_TRIAL,
                EXCLUSIVE_TRIAL,
                RunAdmission::Blocked,
                RunAdmission::Blocked
            ]
        );
        // A run that has never crashed does not wait.
        assert_eq!(admission(Some(1), 0), RunAdmission::Free);
        assert_eq!(admission(Some(1), 1), RunAdmission::Blocked);
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
