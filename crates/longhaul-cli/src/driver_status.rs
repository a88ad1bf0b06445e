//! Tells whether a run needs a driver (a worker that drives it) to continue, and what the run's
//! status means without a driver.

use longhaul_api::run::RunView;
use longhaul_api::why::RunExplanation;
use longhaul_core::status::Status;

use crate::client::Client;
use crate::status_label::{StatusLabel, no_driver_label, status_label};

/// Returns an explanation of the run's status, with a command to run next. The explanation says if
/// no worker drives the run, because such a run makes no progress even if its journal says
/// `running`.
pub(crate) async fn explain_run_status(
    client: &Client,
    run: &RunView,
) -> anyhow::Result<RunExplanation> {
    Ok(explain_run_status_with_label(client, run).await?.0)
}

/// Returns an explanation of the run's status, and the label that is printed for the status.
pub(crate) async fn explain_run_status_with_label(
    client: &Client,
    run: &RunView,
) -> anyhow::Result<(RunExplanation, StatusLabel)> {
    let explanation = client.explain_run(run.id).await;
    let mut explanation = explanation?;
    let mut label = status_label(run.status, run.reason.as_deref());
    if needs_driver(run.status) && !client.has_process_driving_runs().await? {
        label = no_driver_label(run.status);
        // A run behind another one needs a driver of that other run first.
        if !matches!(run.reason.as_deref(), Some("lane" | "batch")) {
            explanation.message =
                format!("No worker drives the run now. Last known status: {}", explanation.message);
            explanation.command = format!("longhaul watch {}", run.id);
        }
    }
    Ok((explanation, label))
}

/// Returns whether a run with this status needs a worker that drives it to continue.
pub(crate) const fn needs_driver(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running)
}
