//! Log lines for the lifecycle of runs. They hold nothing of a run's conversation, which is only in
//! its journal.

use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_engine::worker::hooks::WorkerHooks;

/// Logs when a run is claimed by the worker, completes, fails, is cancelled, or stops being driven
/// because it is parked (waits), paused or released.
#[derive(Debug)]
pub(crate) struct RunLifecycleLogger;

#[async_trait::async_trait]
impl WorkerHooks for RunLifecycleLogger {
    async fn on_run_claimed(&self, run: RunId) {
        tracing::info!(%run, "run claimed");
    }

    async fn on_run_completed(&self, row: &RunRow) {
        let (run, agent, turns) = (row.id, &row.agent, row.turns);
        tracing::info!(%run, %agent, turns, "run completed");
    }

    async fn on_run_failed(&self, row: &RunRow) {
        let (run, agent, turns) = (row.id, &row.agent, row.turns);
        let code = row.code.as_deref().unwrap_or(row.status.as_str());
        let status = row.status.as_str();
        tracing::info!(%run, %agent, turns, code, "run {status}");
    }

    async fn on_run_idle(&self, row: &RunRow) {
        let (run, agent) = (row.id, &row.agent);
        let reason = row.reason.as_deref().unwrap_or(row.status.as_str());
        tracing::info!(%run, %agent, reason, "run idle");
    }
}
