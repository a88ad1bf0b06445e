//! Whether somebody must drive before anything more happens, and what a run
//! waits for when nobody does.
//!
//! Never: guesses. The client knows whether somebody drives.

use longhaul_api::run::RunView;
use longhaul_api::why::WhyView;
use longhaul_core::status::Status;

use crate::client::RunClient;
use crate::status_label::{StatusLabel, status_label, undriven_label};

/// Why a run stands as it does, and what helps. A run whose journal says that it
/// is at work is not, when nobody drives.
pub(crate) async fn explain(client: &RunClient, run: &RunView) -> anyhow::Result<WhyView> {
    Ok(explain_with_label(client, run).await?.0)
}

/// The same, and how the run is marked.
pub(crate) async fn explain_with_label(
    client: &RunClient,
    run: &RunView,
) -> anyhow::Result<(WhyView, StatusLabel)> {
    let said = client.why(run.id).await;
    let mut said = said?;
    let mut stands = status_label(run.status, run.reason.as_deref());
    if needs_driver(run.status) && !client.has_driver().await? {
        stands = undriven_label(run.status);
        said.message = format!("Nobody drives it now. Last known: {}", said.message);
        said.command = format!("longhaul watch {}", run.id);
    }
    Ok((said, stands))
}

/// Whether somebody must drive before anything more happens.
pub(crate) const fn needs_driver(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running)
}
