//! The vault tools: a directory of Markdown notes that agents write and people read.
//!
//! Invariant: the tools stay in the directory, follow no symbolic link, and change a note
//! completely or not at all.

mod front_matter;
mod list;
mod name;
mod note;
mod note_path;
mod read;
mod write;

use std::sync::Arc;

use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;

use crate::disk_tool::disk_tool;
use crate::location::FileLocation;
use crate::safe_dir::SafeDir;
use crate::typed::TypedToolError;
use crate::vault::list::VaultListTool;
use crate::vault::read::VaultReadTool;
use crate::vault::write::VaultWriteTool;

/// The vault tools for a directory of notes. The directory is created with the first note.
#[derive(Debug, Clone)]
pub struct VaultTools {
    dir: SafeDir,
    clock: Arc<dyn Clock>,
}

impl VaultTools {
    /// Creates the vault tools for the directory `root`.
    pub fn new(root: impl Into<FileLocation>, clock: Arc<dyn Clock>) -> Self {
        Self { dir: SafeDir::new_private(root.into()), clock }
    }

    /// Returns `vault_write`, `vault_read` and `vault_list` for this vault.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
        let write = VaultWriteTool { dir: self.dir.clone(), clock: self.clock.clone() };
        Ok(vec![
            disk_tool(write)?,
            disk_tool(VaultReadTool(self.dir.clone()))?,
            disk_tool(VaultListTool(self.dir.clone()))?,
        ])
    }
}
