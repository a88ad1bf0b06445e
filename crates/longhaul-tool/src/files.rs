//! The files of the workspace: read, written, edited, listed and searched.
//!
//! Never: leaves its directory, follows a link, opens what is closed to
//! agents, or changes a file halfway.

mod edit;
mod glob;
mod list;
pub(crate) mod path;
pub(crate) mod protected;
mod read;
mod search;
pub(crate) mod text;
mod walk;
pub(crate) mod workspace;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;

use crate::files::edit::EditFile;
use crate::files::list::ListFiles;
use crate::files::read::ReadFile;
use crate::files::search::SearchFiles;
use crate::files::workspace::Workspace;
use crate::files::write::WriteFile;
use crate::typed::{TypedToolError, typed};

/// A directory that agents work in.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
    protected: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
}

impl Files {
    /// The workspace in the directory `root`, which itself may be a link.
    pub fn new(root: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self { root: root.into(), protected: Vec::new(), clock }
    }

    /// Closes these files and folders to agents, such as the runtime's data,
    /// wherever they are and under whatever name somebody comes for them.
    pub fn with_protected(mut self, kept: impl IntoIterator<Item = PathBuf>) -> Self {
        self.protected.extend(kept);
        self
    }

    /// `read_file`, `write_file`, `edit_file`, `list_files` and `search_files`
    /// over this workspace.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
        let space = Workspace::new(self.root.clone(), self.protected.clone());
        let clock = Arc::clone(&self.clock);
        let list = ListFiles { workspace: space.clone(), clock: clock.clone() };
        Ok(vec![
            typed(ReadFile(space.clone()))?,
            typed(WriteFile(space.clone()))?,
            Arc::new(EditFile::new(space.clone())?),
            typed(list)?,
            typed(SearchFiles { workspace: space, clock })?,
        ])
    }
}
