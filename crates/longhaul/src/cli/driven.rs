//! Whether somebody drives this store now.
//!
//! Never: certain. A worker that was killed counts as alive until its last sign
//! of life is old.

use longhaul_core::port::store::Standing;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_engine::Longhaul;
use longhaul_engine::view::RunView;
use longhaul_run::say::Said;

use crate::cli::fail;

/// A sign of life older than this is none.
const ALIVE: Millis = Millis::from_secs(30);

/// Whether a worker has given a sign of life lately.
pub(crate) async fn is_driven(longhaul: &Longhaul) -> anyhow::Result<bool> {
    let now = longhaul.now().await.map_err(fail::engine)?;
    let shelves = &longhaul.ports().shelves;
    let workers = shelves
        .workers()
        .await
        .map_err(|error| fail::store(&error))?;
    let alive = workers
        .iter()
        .any(|worker| worker.standing == Standing::Live && now.since(worker.beat_at) < ALIVE);
    Ok(alive)
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
