//! The changes of the files in the sandbox of a run, by turn.

use longhaul_api::fork::{RunFilesView, TurnFilesView};
use longhaul_core::event::Event;
use longhaul_core::event::environment::SavedFiles;
use longhaul_core::id::{RunId, Seq};

use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::replay::read_journal_page;

impl Longhaul {
    /// Returns the changes of the files in the sandbox of a run, by turn, and the diff of one turn.
    ///
    /// # Errors
    /// The run does not exist, or the store failed.
    pub async fn run_files(&self, run: RunId, turn: Option<u32>) -> Result<RunFilesView> {
        let mut files = RunFilesView { turns: Vec::new(), diff: None };
        let mut after = Seq::START;
        loop {
            let page = read_journal_page(&self.services, run, after).await?;
            let Some(last) = page.entries.last() else { break };
            after = last.seq;
            for entry in &page.entries {
                let Event::WorkspaceSaved(saved) = &entry.event else { continue };
                let view = |changes, more_files, skipped| TurnFilesView {
                    turn: saved.turn,
                    seq: entry.seq,
                    changes,
                    more_files,
                    skipped,
                };
                match &saved.files {
                    SavedFiles::Unchanged => {}
                    SavedFiles::Skipped { reason } => {
                        files.turns.push(view(Vec::new(), 0, Some(reason.clone())));
                    }
                    // Only the commit or the branch of the agent's repository has changed.
                    SavedFiles::Snapshot(snapshot) if snapshot.changes.is_empty() => {}
                    SavedFiles::Snapshot(snapshot) => {
                        files.turns.push(view(snapshot.changes.clone(), snapshot.more_files, None));
                        if let Some(diff) = snapshot.diff.filter(|_| turn == Some(saved.turn)) {
                            let diff = self.services.records.blob(diff.hash).await?;
                            let diff = diff.unwrap_or_default();
                            let diff = String::from_utf8_lossy(&diff);
                            files.diff.get_or_insert_default().push_str(&diff);
                        }
                    }
                }
            }
        }
        match after == Seq::START {
            true => Err(Error::RunNotFound(run)),
            false => Ok(files),
        }
    }
}
