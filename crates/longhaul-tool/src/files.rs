//! The file tools: read, write, edit, list and search files of the workspace.
//!
//! Invariant: the tools stay in the workspace directory, follow no symbolic link, open no protected
//! file, and change a file completely or not at all.

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

use crate::disk_tool::disk_tool;
use crate::files::edit::EditFileTool;
use crate::files::list::ListFilesTool;
use crate::files::read::ReadFileTool;
use crate::files::search::SearchFilesTool;
use crate::files::workspace::Workspace;
use crate::files::write::WriteFileTool;
use crate::typed::TypedToolError;

/// Returns `read_file`, `write_file`, `edit_file`, `list_files` and `search_files` for the workspace
/// in `root`, which itself may be a symbolic link.
///
/// Agents can't access the protected files and folders, for example the runtime's data, under
/// whatever name.
pub fn file_tools(
    root: impl Into<PathBuf>,
    protected: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
    let workspace = Workspace::new(root.into(), protected, clock);
    Ok(vec![
        disk_tool(ReadFileTool(workspace.clone()))?,
        disk_tool(WriteFileTool(workspace.clone()))?,
        disk_tool(EditFileTool(workspace.clone()))?,
        disk_tool(ListFilesTool(workspace.clone()))?,
        disk_tool(SearchFilesTool(workspace))?,
    ])
}
