//! What an adapter keeps between the turns of a run: bounded, and gone without harm.
//!
//! Never: the truth. What is missing here is made again from the conversation.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::id::RunId;

/// So many runs are remembered.
const RUNS_MAX: usize = 256;

/// So many bytes are, in all.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Something of a size.
pub(crate) trait ByteSize {
    fn byte_size(&self) -> usize;
}

/// What is kept, the run that was asked for last at the end.
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
    /// Takes out what is kept for a run. Whoever takes it has it alone.
    pub(crate) fn take(&self, run: RunId) -> Option<T> {
        let mut runs = self.lock();
        let place = runs.iter().rposition(|(has, _)| *has == run)?;
        runs.remove(place).map(|(_, kept)| kept)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(RunId, T)>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ByteSize> RequestCache<T> {
    /// Keeps this for a run, and lets go of the oldest where it grows too much.
    pub(crate) fn insert(&self, run: RunId, kept: T) {
        let mut runs = self.lock();
        runs.retain(|(has, _)| *has != run);
        runs.push_back((run, kept));
        let mut bytes: usize = runs.iter().map(|(_, kept)| kept.byte_size()).sum();
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

    struct TestEntry(usize);

    impl ByteSize for TestEntry {
        fn byte_size(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn the_oldest_cached_request_is_evicted() {
        let kept = RequestCache::default();
        for run in 0..300 {
            kept.insert(RunId::from_bits(run), TestEntry(1));
        }
        assert_eq!(kept.lock().len(), RUNS_MAX);
        assert!(kept.take(RunId::from_bits(43)).is_none());
        assert!(kept.take(RunId::from_bits(44)).is_some());
        assert!(kept.take(RunId::from_bits(44)).is_none(), "it was taken");
        kept.insert(RunId::from_bits(1), TestEntry(BYTES_MAX));
        assert_eq!(kept.lock().len(), 1);
        kept.insert(RunId::from_bits(2), TestEntry(BYTES_MAX + 1));
        assert_eq!(kept.lock().len(), 0, "too much for anyone");
    }
}
