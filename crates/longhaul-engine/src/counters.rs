//! Counters of stuck handlers and stalled runs in this process, for metrics and for the program
//! that embeds the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of stuck handlers and stalled runs in this process. Cheap to clone; clones share the
/// counts.
#[derive(Debug, Clone, Default)]
pub struct EngineCounters {
    stuck_handlers: Arc<AtomicUsize>,
    /// Number of runs that were released because their driver (the async task that executes a run)
    /// had stalled.
    pub stalled_runs: Arc<AtomicU64>,
}

impl EngineCounters {
    /// Returns the number of handlers (functions that are registered as agents) that were aborted
    /// and have not returned yet.
    pub fn stuck_handler_count(&self) -> usize {
        self.stuck_handlers.load(Ordering::Relaxed)
    }

    /// Counts an aborted handler (a function that is registered as an agent) as stuck until the
    /// returned guard is dropped.
    pub fn count_stuck_handler(&self) -> StuckHandlerGuard {
        self.stuck_handlers.fetch_add(1, Ordering::Relaxed);
        StuckHandlerGuard(self.clone())
    }
}

/// Guard that counts an aborted handler (a function that is registered as an agent) as stuck until
/// the guard is dropped.
#[derive(Debug)]
pub struct StuckHandlerGuard(EngineCounters);

impl Drop for StuckHandlerGuard {
    fn drop(&mut self) {
        self.0.stuck_handlers.fetch_sub(1, Ordering::Relaxed);
    }
}
