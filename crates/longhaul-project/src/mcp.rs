//! The MCP servers that a project lists in `.mcp.json`, in the format that other MCP clients use.
//!
//! This module starts no server and never shows the value of a variable.

pub mod expand;
pub mod file;
pub mod name;
mod parser;
pub mod server;
