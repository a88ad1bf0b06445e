//! The servers of tools that a project names in `.mcp.json`, as other programs
//! write that file.
//!
//! Never: starts one, and never shows what a variable holds.

pub mod expand;
mod fields;
pub mod file;
pub mod filled;
pub mod name;
mod oauth;
mod read;
pub mod server;

use crate::config::settings::Config;
use crate::mcp::file::McpFile;

/// The names of the servers that this project's agents may ask for.
pub fn names(config: &Config) -> Vec<String> {
    let file = McpFile::of(config);
    let servers = file.servers.into_iter();
    servers.map(|server| server.name).collect()
}
