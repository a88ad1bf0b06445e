//! Longhaul, a durable runtime for AI agents: the facade that programs use.
//!
//! Never: holds a business rule. It names the concrete parts, puts them
//! together, and passes words on.

pub mod agents;
pub mod assemble;
pub mod config;
mod inside;
pub mod local_key;
pub mod marker;
pub mod mcp;
pub mod skills;
pub mod span;
pub mod stateless;
pub mod trust;
pub mod written;

use std::path::Path;

/// The bytes of the project's file `name` below `root`, at most `bytes_max`. A link is followed as
/// long as it stays inside.
///
/// # Errors
/// Why it can't be read, as the rest of a sentence that begins with its name.
pub fn read_project_file(root: &Path, name: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    inside::read(root, name, bytes_max).map_err(|unread| unread.to_string())
}
