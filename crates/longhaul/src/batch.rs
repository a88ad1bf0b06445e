//! Batches: runs that are submitted together.

use longhaul_core::id::BatchId;

use crate::error::Error;
use crate::run::{FinishedRun, RunHandle};

/// Runs that were submitted together with [`Runtime::submit_all`](crate::Runtime::submit_all).
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// use longhaul::{Mode, Task};
///
/// let tasks = ["a.txt", "b.txt"].map(|file| Task::new("reader").input(file));
/// for done in runtime.submit_all(tasks, Mode::Sequential).await?.wait().await? {
///     println!("{}", done.status.as_str());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) id: BatchId,
    pub(crate) runs: Vec<RunHandle>,
}

impl Batch {
    /// Returns the id of the batch, which `longhaul batch show` accepts.
    pub const fn id(&self) -> BatchId {
        self.id
    }

    /// The runs of the batch, in the order of their tasks.
    pub fn runs(&self) -> &[RunHandle] {
        &self.runs
    }

    /// Waits until all runs have ended, with any status. The results are in the order of the tasks.
    ///
    /// # Errors
    /// A run no longer exists, the last worker has failed, or the store failed.
    pub async fn wait(&self) -> Result<Vec<FinishedRun>, Error> {
        let mut finished = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            finished.push(run.wait().await?);
        }
        Ok(finished)
    }
}
