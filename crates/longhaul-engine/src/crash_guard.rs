//! Keeps a run that ends its worker process from doing so without end.
//!
//! Every run that was in flight when the process died counts a crash, so the last
//! attempt before a run is blocked is a trial: no other run that has crashed before is
//! in flight beside it until it makes progress. A run that has never crashed waits for
//! nobody: one that ends the process while another is on trial blocks that one.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A run that has crashed before holds one of these, and a run on trial holds all.
const PERMITS: u32 = 1 << 16;

/// A bound on crashes, shared by all drives of one worker.
#[derive(Debug, Clone)]
pub struct CrashGuard {
    /// None: no bound.
    limit: Option<u32>,
    /// First come, first served: a run that waits for all of them is not overtaken.
    permits: Arc<Semaphore>,
}

/// The right to begin after a crash.
pub(crate) type Trial = OwnedSemaphorePermit;

/// What a number of crashes means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may begin at once.
    Free,
    /// It needs a [`Trial`] of so many permits.
    Trial { permits: u32 },
    /// There is none.
    Blocked,
}

impl CrashGuard {
    /// A guard that blocks a run after `limit` crashes at the same place.
    pub fn new(limit: Option<u32>) -> Self {
        Self {
            limit: limit.filter(|limit| *limit > 0),
            permits: Arc::new(Semaphore::new(PERMITS as usize)),
        }
    }

    pub(crate) fn admission(&self, crashes: u32) -> Admission {
        match self.limit {
            Some(limit) if crashes >= limit => Admission::Blocked,
            Some(limit) if crashes > 0 && crashes + 1 == limit => {
                Admission::Trial { permits: PERMITS }
            }
            Some(_) if crashes > 0 => Admission::Trial { permits: 1 },
            Some(_) | None => Admission::Free,
        }
    }

    /// So many permits, if nobody is in the way.
    pub(crate) fn try_trial(&self, permits: u32) -> Option<Trial> {
        let all = Arc::clone(&self.permits);
        all.try_acquire_many_owned(permits).ok()
    }

    /// Waits for so many permits. None: never.
    pub(crate) async fn trial(&self, permits: u32) -> Option<Trial> {
        let all = Arc::clone(&self.permits);
        all.acquire_many_owned(permits).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSIVE_TRIAL: Admission = Admission::Trial { permits: PERMITS };
    const SHARED_TRIAL: Admission = Admission::Trial { permits: 1 };

    #[test]
    fn the_last_attempt_before_the_limit_is_a_trial() {
        let admitted = |limit, crashes| CrashGuard::new(limit).admission(crashes);
        let three: Vec<Admission> = (0..5).map(|crashes| admitted(Some(3), crashes)).collect();
        assert_eq!(
            three,
            [
                Admission::Free,
                SHARED_TRIAL,
                EXCLUSIVE_TRIAL,
                Admission::Blocked,
                Admission::Blocked
            ]
        );
        // A run that has never crashed waits for nobody.
        assert_eq!(admitted(Some(1), 0), Admission::Free);
        assert_eq!(admitted(Some(1), 1), Admission::Blocked);
        for limit in [None, Some(0)] {
            assert_eq!(admitted(limit, 1_000), Admission::Free);
        }
    }

    #[tokio::test]
    async fn crashed_runs_and_trials_exclude_each_other() {
        let guard = CrashGuard::new(Some(3));
        let (first, second) = (guard.try_trial(1), guard.try_trial(1));
        assert!(first.is_some() && second.is_some(), "side by side");
        assert!(guard.try_trial(PERMITS).is_none());
        let mut waiting = std::pin::pin!(guard.trial(PERMITS));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // Whoever comes later does not keep it waiting.
        assert!(guard.try_trial(1).is_none());
        drop((first, second));
        let alone = waiting.await;
        assert!(alone.is_some() && guard.try_trial(1).is_none());
        drop(alone);
        assert!(guard.try_trial(1).is_some());
    }
}
