//! Deletes ended runs at a person's request.

use longhaul_api::run_list::DeletedRunView;
use longhaul_core::id::RunId;
use longhaul_core::port::records::{DeleteRunsOutcome, DeletedRuns};
use longhaul_core::port::store::RunRow;

use crate::error::{Error, Result};
use crate::handle::Longhaul;

impl Longhaul {
    /// Deletes an ended run with all runs of its tree, and the notes that they wrote. A run of a
    /// chain stands for all runs of the tree of its chain.
    ///
    /// # Errors
    /// A run of the tree is still in use, the run is the child of another one, or it does not exist.
    pub async fn delete_run(&self, run: RunId) -> Result<DeletedRunView> {
        let row = self.run_row(run).await?;
        if row.is_child() {
            let root = row.root;
            let reason = format!(
                "it is a child run of {root}, which is deleted as a whole: longhaul rm {root}"
            );
            return Err(Error::RunInUse { run, reason });
        }
        let reason = match self.services.records.delete_run_tree(row.root).await? {
            DeleteRunsOutcome::Deleted(deleted) => return Ok(deleted_run_view(&row, deleted)),
            DeleteRunsOutcome::NotFound => return Err(Error::RunNotFound(run)),
            DeleteRunsOutcome::Open(open) => {
                format!("{open} has not ended; end it first: longhaul cancel {open}")
            }
            DeleteRunsOutcome::HasSandbox(sandbox) => {
                format!("its sandbox {sandbox} exists: longhaul sandboxes rm {sandbox}")
            }
            DeleteRunsOutcome::Undelivered(run) => format!(
                "the inbox of {run} has not been told of the run's end yet, which a worker does: \
                 longhaul worker"
            ),
        };
        Err(Error::RunInUse { run, reason })
    }
}

/// Returns the view of deleted runs, which says what is kept and why.
fn deleted_run_view(row: &RunRow, deleted: DeletedRuns) -> DeletedRunView {
    let mut kept = Vec::new();
    if let Some(thread) = &row.thread {
        kept.push(format!(
            "the messages of the thread `{thread}`; to delete them: longhaul memory clear {thread}"
        ));
    }
    if deleted.continued_by > 0 {
        let count = deleted.continued_by;
        kept.push(format!(
            "retries and forks of the run ({count}), with the events that they copied"
        ));
    }
    kept.push(
        "effect keys that the runs have used, as hashes, so that no effect is repeated".to_owned(),
    );
    DeletedRunView { id: row.root, runs: deleted.runs, notes: deleted.notes, kept }
}
