//! Cache of encoded requests, kept between the turns of a run. The cache is bounded, and a missing
//! entry is rebuilt from the conversation.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::id::RunId;

/// Maximum number of runs whose requests are cached.
const RUNS_MAX: usize = 256;

/// Maximum total size of the cached requests in bytes.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A value that can be cached, with its size in bytes, which counts towards the size of the cache.
pub(crate) trait ByteSize {
    fn byte_size(&self) -> usize;
}

/// Cache of one value per run. The most recently inserted value comes last.
pub(crate) struct RequestCache<T> {
    runs: Mutex<VecDeque<(RunId, T)>>,
}

impl<T> Default for RequestCache<T> {
    fn default() -> Self {
        Self { runs: Mutex::new(VecDeque::new()) }
    }
}

impl<T> fmt::Debug for RequestCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestCache({} runs)", self.lock().len())
    }
}

impl<T> RequestCache<T> {
    /// Removes and returns the cached value of a run.
    pub(crate) fn take(&self, run: RunId) -> Option<T> {
        let mut runs = self.lock();
        let index = runs.iter().rposition(|(cached_run, _)| *cached_run == run)?;
        runs.remove(index).map(|(_, value)| value)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RunId, T)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ByteSize> RequestCache<T> {
    /// Inserts the value of a run and evicts the oldest entries if the cache is too large.
    pub(crate) fn insert(&self, run: RunId, value: T) {
        let mut runs = self.lock();
        runs.retain(|(cached_run, _)| *cached_run != run);
        runs.push_back((run, value));
        let mut bytes: usize = runs.iter().map(|(_, value)| value.byte_size()).sum();
        while runs.len() > RUNS_MAX || bytes > BYTES_MAX {
            let Some((_, oldest)) = runs.pop_front() else {
                break;
            };
            bytes -= oldest.byte_size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SizedTestEntry(usize);

    impl ByteSize for SizedTestEntry {
        fn byte_size(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn the_oldest_cached_request_is_evicted() {
        let cache = RequestCache::default();
        for run in 0..300 {
            cache.insert(RunId::from_bits(run), SizedTestEntry(1));
        }
        assert_eq!(cache.lock().len(), RUNS_MAX);
        assert!(cache.take(RunId::from_bits(43)).is_none());
        assert!(cache.take(RunId::from_bits(44)).is_some());
        assert!(cache.take(RunId::from_bits(44)).is_none(), "take removes the entry");
        cache.insert(RunId::from_bits(1), SizedTestEntry(BYTES_MAX));
        assert_eq!(cache.lock().len(), 1);
        cache.insert(RunId::from_bits(2), SizedTestEntry(BYTES_MAX + 1));
        assert_eq!(cache.lock().len(), 0, "an entry larger than the cache");
    }
}
