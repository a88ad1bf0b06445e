//! What a server reports: a banner with its addresses and files, and log lines for the lifecycle of runs,
//! which a worker without a server reports too. The banner is never written to a log file, because it
//! contains a one-time login link. A JSON log holds nothing of a run's conversation, which is only in
//! its journal.

use longhaul::project::ProjectRuntime;
use longhaul_api::transcript::RunExplanation;
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::Status;
use longhaul_core::wait::{WaitEnd, WaitKind};
use longhaul_engine::handle::Longhaul;
use longhaul_engine::secret::Secret;
use longhaul_engine::worker::WorkerHooks;
use longhaul_project::assemble::sqlite_store_path;

use crate::log::LogStyle;
use crate::output;

/// Prints the banner of a server that listens at this URL. The ticket is the secret of the login
/// link.
pub(crate) fn print_banner(runtime: &ProjectRuntime, url: &str, ticket: &Secret) {
    let store = sqlite_store_path(&runtime.config).unwrap_or_default();
    let data = store.strip_prefix(&runtime.config.root).unwrap_or(&store).display().to_string();
    let model = match runtime.longhaul.services().models.resolve_model_name(None) {
        Ok(model) => model.name,
        Err(_) => "none by default".to_owned(),
    };
    let agents = runtime.loaded.agents.len();
    let lines = [
        ("API", format!("{url}/v1"), "described at /openapi.json"),
        ("Data", data, "survives restarts"),
        ("Agents", agents.to_string(), "longhaul agents"),
        ("Model", model, "if an agent names none"),
        ("Stop", "Ctrl-C".to_owned(), "runs continue after a restart"),
    ];
    output::eprint_line(&format!("\n  Longhaul {}\n", env!("CARGO_PKG_VERSION")));
    output::eprint_line(&format!("  Pages    {url}/?t={}", ticket.reveal()));
    output::eprint_line(
        "           one-time link, valid for 10 minutes; another one: longhaul keys link",
    );
    for (name, value, note) in lines {
        output::eprint_line(&format!("  {name:<8} {value:<36} {note}"));
    }
    output::eprint_line("");
}

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
