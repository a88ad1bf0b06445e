//! Whether somebody drives this store now.
//!
//! Never: guesses. The store knows; a file's lock dies with its driver.

use longhaul_core::status::Status;
use longhaul_engine::Longhaul;
use longhaul_engine::view::RunView;
use longhaul_run::say::Said;

use crate::cli::fail;

/// Whether somebody drives.
pub(crate) async fn is_driven(longhaul: &Longhaul) -> anyhow::Result<bool> {
    let driven = longhaul.ports().shelves.is_driven().await;
    Ok(driven.map_err(|error| fail::store(&error))?)
}

/// Why a run stands as it does, and what helps. A run whose journal says that it
/// is at work is not, when nobody drives.
pub(crate) async fn why(longhaul: &Longhaul, run: &RunView) -> anyhow::Result<Said> {
    let said = longhaul.why(run.id).await;
    let mut said = said.map_err(fail::about_run(run.id))?;
    if wants_driver(run.status) && !is_driven(longhaul).await? {
        said.sentence = format!("Nobody drives it now. Last known: {}", said.sentence);
        said.command = format!("longhaul watch {}", run.id);
    }
    Ok(said)
}

/// Whether somebody must drive before anything more happens.
pub(crate) const fn wants_driver(status: Status) -> bool {
    matches!(status, Status::Pending | Status::Running)
}
