//! The servers of tools that a project names in `.mcp.json`, as other programs
//! write that file.
//!
//! Never: starts one, and never shows what a variable holds.

pub mod expand;
pub mod file;
pub mod name;
mod oauth;
mod parser;
pub mod resolved;
pub mod server;
mod server_parser;
