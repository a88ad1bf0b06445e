//! A line in the log for each thing that happens to a run.
//!
//! Never: what a run said. That stands in its journal.

use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_engine::hooks::Hooks;

/// Writes lines.
#[derive(Debug)]
pub(crate) struct LifecycleLog;

#[async_trait::async_trait]
impl Hooks for LifecycleLog {
    async fn on_start(&self, run: RunId) {
        tracing::info!(%run, "claimed");
    }

    async fn on_complete(&self, row: &RunRow) {
        let (run, agent, turns) = (row.id, &row.agent, row.turns);
        tracing::info!(%run, %agent, turns, "completed");
    }

    async fn on_error(&self, row: &RunRow) {
        let (run, agent, turns) = (row.id, &row.agent, row.turns);
        let code = row.code.as_deref().unwrap_or(row.status.as_str());
        let ended = row.status.as_str();
        tracing::info!(%run, %agent, turns, code, "{ended}");
    }

    async fn on_idle(&self, row: &RunRow) {
        let (run, agent) = (row.id, &row.agent);
        let reason = row.reason.as_deref().unwrap_or(row.status.as_str());
        tracing::info!(%run, %agent, reason, "rests");
    }
}
