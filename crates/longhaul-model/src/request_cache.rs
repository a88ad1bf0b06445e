//! Cache of encoded requests, kept between the turns of a run. The cache is bounded, and a missing
//! entry is rebuilt from the conversation.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::id::RunId;

/// Maximum number of runs whose requests are cached.
const RUNS_MAX: usize = 256;

/// Maximum total size of the cached requests in bytes.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Cache of one value per run. The most recently inserted value comes last.
pub(crate) struct RequestCache<T> {
    /// Values with their sizes in bytes.
    runs: Mutex<VecDeque<(RunId, T, usize)>>,
}

impl<T> Default for RequestCache<T> {
    fn default() -> Self {
        Self { runs: Mutex::new(VecDeque::new()) }
    }
}

impl<T> RequestCache<T> {
    /// Removes and returns the cached value of a run.
    pub(crate) fn take(&self, run: RunId) -> Option<T> {
        let mut runs = self.lock();
        let index = runs.iter().rposition(|(cached_run, ..)| *cached_run == run)?;
        runs.remove(index).map(|(_, value, _)| value)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RunId, T, usize)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts the value of a run, which has this many bytes, and evicts the oldest entries if the
    /// cache is too large.
    pub(crate) fn insert(&self, run: RunId, value: T, bytes: usize) {
        let mut runs = self.lock();
        runs.retain(|(cached_run, ..)| *cached_run != run);
        runs.push_back((run, value, bytes));
        let mut total: usize = runs.iter().map(|(.., bytes)| bytes).sum();
        while runs.len() > RUNS_MAX || total > BYTES_MAX {
            let Some((.., bytes)) = runs.pop_front() else {
                break;
            };
            total -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_cached_request_is_evicted() {
        let cache = RequestCache::default();
        for run in 0..300 {
            cache.insert(RunId::from_bits(run), (), 1);
        }
        assert_eq!(cache.lock().len(), RUNS_MAX);
        assert!(cache.take(RunId::from_bits(43)).is_none());
        assert!(cache.take(RunId::from_bits(44)).is_some());
        assert!(cache.take(RunId::from_bits(44)).is_none(), "take removes the entry");
        cache.insert(RunId::from_bits(1), (), BYTES_MAX);
        assert_eq!(cache.lock().len(), 1);
        cache.insert(RunId::from_bits(2), (), BYTES_MAX + 1);
        assert_eq!(cache.lock().len(), 0, "an entry larger than the cache");
    }
}
