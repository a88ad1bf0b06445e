//! The sandbox of a run, in which its tools work.

use longhaul_core::change::{SandboxRow, SandboxState};
use longhaul_core::event::environment::{SandboxEvent, SavedFiles};
use longhaul_core::id::{Epoch, RunId};
use longhaul_core::task::InheritedSandbox;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Files that the tool calls of a run change in its sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceState {
    /// Commit of the last snapshot of the files. `None` means that there is no snapshot.
    pub commit: Option<String>,
    pub(crate) changes: WorkspaceChanges,
}

/// Whether the last snapshot contains all changes of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkspaceChanges {
    /// All changes are saved, or nothing was changed.
    #[default]
    Saved,
    /// A call that may have changed files was started since the last snapshot.
    Unsaved,
    /// The files are not saved, and are not saved before they change again.
    Skipped,
}

impl WorkspaceState {
    /// Returns the state of a run that has changed nothing. The files of a sandbox that the run takes
    /// over are in no snapshot of the run.
    pub(crate) const fn of_new_run(takes_sandbox_over: bool) -> Self {
        let changes = match takes_sandbox_over {
            true => WorkspaceChanges::Skipped,
            false => WorkspaceChanges::Saved,
        };
        Self { commit: None, changes }
    }

    /// Returns whether a new sandbox can have the files as they are now.
    pub(crate) const fn is_saved(&self) -> bool {
        matches!(self.changes, WorkspaceChanges::Saved)
    }

    pub(crate) fn apply(&mut self, files: &SavedFiles) {
        self.changes = match files {
            SavedFiles::Unchanged => WorkspaceChanges::Saved,
            SavedFiles::Skipped { .. } => WorkspaceChanges::Skipped,
            SavedFiles::Snapshot(snapshot) => {
                self.commit = Some(snapshot.commit.clone());
                WorkspaceChanges::Saved
            }
        };
    }
}

/// The last sandbox of a run. An earlier one is replaced when its provider has lost it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSandbox {
    /// Facts about the sandbox, as in the event of its last change.
    pub event: SandboxEvent,
    pub state: SandboxState,
    /// Epoch of the claim under which the sandbox was last opened. `None` means that the run has
    /// not opened it, for example because it continues in the sandbox of an earlier step of its
    /// chain.
    pub(crate) open_epoch: Option<Epoch>,
    /// Whether the row of the sandbox says since when the run does not use it.
    #[serde(default)]
    pub(crate) is_marked_idle: bool,
    /// Number of waits after failed attempts to open the sandbox since it last ran.
    pub(crate) failures: u32,
}

impl RunSandbox {
    /// Returns whether tool calls under this claim can start in the sandbox.
    pub(crate) fn is_open(&self, epoch: Epoch) -> bool {
        self.state == SandboxState::Running && self.open_epoch == Some(epoch)
    }

    /// Returns the sandbox that a run takes over from an earlier step of its chain.
    pub(crate) fn inherited(sandbox: &InheritedSandbox) -> Box<Self> {
        let InheritedSandbox { event, state } = sandbox.clone();
        Box::new(Self { event, state, is_marked_idle: true, ..Self::default() })
    }

    /// Applies a change of the sandbox, which the driver with this epoch or another process has
    /// made.
    pub(crate) fn apply(&mut self, event: &SandboxEvent, state: SandboxState, epoch: Epoch) {
        let is_opened = state == SandboxState::Running;
        if is_opened {
            self.failures = 0;
        }
        self.open_epoch = is_opened.then_some(epoch);
        self.event = event.clone();
        self.state = state;
    }

    /// Returns the store row of the sandbox while the owner uses it.
    pub(crate) fn row(&self, owner: RunId, now: Timestamp) -> SandboxRow {
        SandboxRow {
            event: self.event.clone(),
            state: self.state,
            since: now,
            idle_since: None,
            owner,
            owner_ended: false,
        }
    }
}
