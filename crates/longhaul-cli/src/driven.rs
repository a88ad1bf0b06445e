//! Whether somebody must drive before anything more happens, and what a run
//! waits for when nobody does.
//!
//! Never: guesses. The desk knows whether somebody drives.

use longhaul_api::run::RunView;
use longhaul_api::why::WhyView;
use longhaul_core::status::Status;

use crate::desk::Desk;
use crate::fail;
use crate::mark::{Mark, left, mark};

/// Why a run stands as it does, and what helps. A run whose journal says that it
/// is at work is not, when nobody drives.
pub(crate) async fn why(desk: &dyn Desk, run: &RunView) -> anyhow::Result<WhyView> {
    Ok(stand(desk, run).await?.0)
}

/// The same, and how the run is marked.
pub(crate) async fn stand(desk: &dyn Desk, run: &RunView) -> anyhow::Result<(WhyView, Mark)> {
    let said = desk.why(run.id).await;
    let mut said = said.map_err(fail::about_run(run.id))?;
    let mut stands = mark(run.status, run.reason.as_deref());
    if wants_driver(run.status) && !desk.is_driven().await.map_err(fail::engine)? {
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
