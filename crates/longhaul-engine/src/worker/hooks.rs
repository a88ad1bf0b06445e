//! Callbacks (hooks) into the embedding program when runs start, end or park.
//!
//! A hook never delays a run for long: it has a timeout, and a panic in a hook is logged and
//! ignored.

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;

/// Callbacks that a worker invokes. Every method has an empty default implementation.
#[async_trait]
pub trait WorkerHooks: Send + Sync + std::fmt::Debug {
    /// Called when the worker has claimed a run, before it drives the run.
    async fn on_run_claimed(&self, _run: RunId) {}

    /// Called when a run has completed.
    async fn on_run_completed(&self, _run: &RunRow) {}

    /// Called when a run has failed or was cancelled.
    async fn on_run_failed(&self, _run: &RunRow) {}

    /// Called when a run was parked (it waits for something), paused or released, and this worker
    /// no longer drives it.
    async fn on_run_idle(&self, _run: &RunRow) {}

    /// Called when the worker found no run to claim.
    async fn on_no_run_found(&self) {}
}

/// [`WorkerHooks`] that do nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl WorkerHooks for NoHooks {}
