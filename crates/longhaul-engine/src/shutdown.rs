//! Two-phase shutdown of a worker: first nothing new is started, then running work is aborted.
//!
//! An aborted run is not lost: another worker can claim it.

use tokio_util::sync::CancellationToken;

/// Shutdown signal of a worker, with a drain phase and an abort phase. Cheap to clone; clones share
/// state.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    abort: CancellationToken,
}

impl Shutdown {
    /// Creates a shutdown signal for which no phase was requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the drain phase: nothing new is started.
    pub fn request_drain(&self) {
        self.drain.cancel();
    }

    /// Requests the abort phase: running work is aborted. Implies the drain phase.
    pub fn request_abort(&self) {
        self.drain.cancel();
        self.abort.cancel();
    }

    /// Whether the drain phase was requested.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Waits until the drain phase is requested.
    pub async fn wait_for_drain_request(&self) {
        self.drain.cancelled().await;
    }

    /// Waits until the abort phase is requested.
    pub async fn wait_for_abort_request(&self) {
        self.abort.cancelled().await;
    }
}
