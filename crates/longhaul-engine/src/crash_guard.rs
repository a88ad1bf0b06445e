//! Keeps a run that ends its worker process from doing so without end.
//!
//! Every run that was in flight when the process died counts a crash, so the last
//! attempt before a run is blocked is a trial: one run at a time, and the others of
//! that count wait. Only the run on trial is blocked when the process dies again.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A bound on crashes, shared by all drives of one worker.
#[derive(Debug, Clone)]
pub struct CrashGuard {
    /// None: no bound.
    limit: Option<u32>,
    trials: Arc<Semaphore>,
}

/// The right to make the last attempt of a run.
pub(crate) type Trial = OwnedSemaphorePermit;

/// What a number of crashes means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may begin at once.
    Free,
    /// It needs a [`Trial`].
    OnTrial,
    /// There is none.
    Blocked,
}

impl CrashGuard {
    /// A guard that blocks a run after `limit` crashes at the same place.
    pub fn new(limit: Option<u32>) -> Self {
        Self {
            limit: limit.filter(|limit| *limit > 0),
            trials: Arc::new(Semaphore::new(1)),
        }
    }

    pub(crate) fn admission(&self, crashes: u32) -> Admission {
        match self.limit {
            Some(limit) if crashes >= limit => Admission::Blocked,
            Some(limit) if crashes > 0 && crashes + 1 == limit => Admission::OnTrial,
            Some(_) | None => Admission::Free,
        }
    }

    /// Waits until no other run of this worker is on trial. None: never.
    pub(crate) async fn trial(&self) -> Option<Trial> {
        Arc::clone(&self.trials).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempt_before_the_limit_is_a_trial() {
        let admitted = |limit, crashes| CrashGuard::new(limit).admission(crashes);
        let three: Vec<Admission> = (0..5).map(|crashes| admitted(Some(3), crashes)).collect();
        assert_eq!(
            three,
            [
                Admission::Free,
                Admission::Free,
                Admission::OnTrial,
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
}
