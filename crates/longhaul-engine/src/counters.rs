//! Counters of stuck handlers and stalled runs in this process, for metrics and for the program
//! that embeds the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of stuck handlers and stalled runs in this process. Cheap to clone; clones share the
/// counts.
#[derive(Debug, Clone, Default)]
pub struct EngineCounters(Arc<CounterValues>);

#[derive(Debug, Default)]
struct CounterValues {
    stuck_handlers: AtomicUsize,
    stalled_runs: AtomicU64,
}

impl EngineCounters {
    /// Returns the number of handlers (functions that are registered as agents) that were aborted
    /// and have not returned yet.
    pub fn stuck_handler_count(&self) -> usize {
        self.0.stuck_handlers.load(Ordering::Relaxed)
    }

    /// Counts an aborted handler (a function that is registered as an agent) as stuck until the
    /// returned guard is dropped.
    pub fn count_stuck_handler(&self) -> StuckHandlerGuard {
        self.0.stuck_handlers.fetch_add(1, Ordering::Relaxed);
        StuckHandlerGuard(self.clone())
    }

    /// Returns the number of runs that were released because their driver (the async task that
    /// executes a run) had stalled.
    pub fn stalled_run_count(&self) -> u64 {
        self.0.stalled_runs.load(Ordering::Relaxed)
    }

    /// Counts a run that was released because its driver (the async task that executes the run) had
    /// stalled.
    pub(crate) fn count_stalled_run(&self) {
        self.0.stalled_runs.fetch_add(1, Ordering::Relaxed);
    }
}

/// Guard that counts an aborted handler (a function that is registered as an agent) as stuck until
/// the guard is dropped.
#[derive(Debug)]
pub struct StuckHandlerGuard(EngineCounters);

impl Drop for StuckHandlerGuard {
    fn drop(&mut self) {
        self.0.0.stuck_handlers.fetch_sub(1, Ordering::Relaxed);
    }
}
