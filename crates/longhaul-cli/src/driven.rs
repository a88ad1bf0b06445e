//! Whether somebody must drive before anything more happens, and what a run
//! waits for when nobody does.
//!
//! Never: guesses. The client knows whether somebody drives.

use longhaul_api::run::RunView;
use longhaul_api::why::WhyView;
use longhaul_core::status::Status;

use crate::client::RunClient;
use crate::mark::{Mark, left, mark};

/// Why a run stands as it does, and what helps. A run whose journal says that it
/// is at work is not, when nobody drives.
pub(crate) async fn why(client: &RunClient, run: &RunView) -> anyhow::Result<WhyView> {
    Ok(stand(client, run).await?.0)
}

/// The same, and how the run is marked.
pub(crate) async fn stand(client: &RunClient, run: &RunView) -> anyhow::Result<(WhyView, Mark)> {
    let said = client.why(run.id).await;
    let mut said = said?;
    let mut stands = mark(run.status, run.reason.as_deref());
    if wants_driver(run.status) && !client.is_driven().await? {
        stands = left(run.status);
        said.sentence = format!("Nobody drives it now. Last known: {}", said.sentence);
        said.command = format!("longhaul watch {}", run.id);
    }
    Ok((said, stands))
}

/// Whether somebody must drive before anything more happens.
pub(crate) const fn wants_driver(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running)
}
