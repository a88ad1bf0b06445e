//! Project folders: settings, agent files, chain files, skills, `.mcp.json`, and what a project may
//! run, send or open.
//!
//! `assemble` builds the parts of a runtime from them. The library `longhaul` uses this crate with
//! its feature `project`.

pub mod agents;
pub mod assemble;
pub mod chains;
pub mod config;
pub mod local_key;
pub mod mcp;
pub mod private_file;
pub mod process;
mod project_file;
pub mod server_marker;
pub mod skills;
pub mod spanned;
pub mod trust;

use std::path::Path;

/// Reads the file `name` of the project in `root`, at most `bytes_max` bytes. A symbolic link is
/// followed if its target is inside the project.
///
/// # Errors
/// The file can't be read. The message does not contain the file's name.
pub fn read_project_file(root: &Path, name: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    project_file::read_file_in_project(root, name, bytes_max).map_err(|error| error.to_string())
}
