//! The MCP servers that a project lists in `.mcp.json`, in the format that other MCP clients use.
//!
//! This module starts no server and never shows the value of a variable.

pub mod expand;
pub mod file;
pub mod name;
mod oauth;
mod parser;
pub mod resolved;
pub mod server;
mod server_parser;
