//! The log lines of servers and workers about the lifecycle of runs. A JSON log holds nothing of a run's
//! conversation, which is only in its journal.

use longhaul_api::transcript::RunExplanation;
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::Status;
use longhaul_core::wait::{WaitEnd, WaitKind};
use longhaul_engine::handle::Longhaul;
use longhaul_engine::worker::WorkerHooks;

use crate::log::LogStyle;

/// Logs when a run is claimed by the worker, completes, fails, is cancelled, or stops being driven
/// because it is parked (waits), paused or released.
#[derive(Debug)]
pub(crate) struct RunLifecycleLogger {
    pub(crate) longhaul: Longhaul,
    pub(crate) style: LogStyle,
}

#[async_trait::async_trait]
impl WorkerHooks for RunLifecycleLogger {
    async fn on_run_claimed(&self, run: RunId) {
        tracing::info!(%run, "run claimed");
    }

    async fn on_run_completed(&self, row: &RunRow) {
        tracing::info!(run = %row.id, agent = %row.agent, turns = row.turns, "run completed");
    }

    async fn on_run_failed(&self, row: &RunRow) {
        let (run, agent, status) = (row.id, &row.agent, row.status.as_str());
        let code = row.code.as_deref().unwrap_or(status);
        tracing::info!(%run, %agent, turns = row.turns, code, "run {status}");
    }

    async fn on_run_idle(&self, row: &RunRow) {
        let reason = row.reason.as_deref().unwrap_or(row.status.as_str());
        let wait = row.reason.as_deref().and_then(WaitKind::from_code);
        let needs_person = row.status == Status::Blocked
            || wait.is_some_and(|wait| wait.row().ended_by == WaitEnd::Person);
        let explanation = match needs_person {
            true => self.longhaul.explain_run(row.id).await.ok(),
            false => None,
        };
        let (run, agent) = (row.id, &row.agent);
        match explanation {
            None => tracing::info!(%run, %agent, reason, "run idle"),
            Some(RunExplanation { command, .. }) if self.style == LogStyle::Json => {
                tracing::info!(%run, %agent, reason, command, "run idle");
            }
            Some(RunExplanation { message, command, .. }) => {
                tracing::info!(%run, %agent, "{message}   {command}");
            }
        }
    }
}
