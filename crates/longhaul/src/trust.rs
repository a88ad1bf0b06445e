//! What a project would do on its own is a stranger's doing until a person has
//! looked at it: the servers of `.mcp.json`, programs that look at the world for
//! an agent, the program that messages are handed to, and where its file would
//! have keys sent.
//!
//! Never: decided by the project. The decisions lie outside of it, each bound to
//! the hash of what was shown.

pub mod book;
mod filed;
pub mod found;
mod named;
pub mod sends;
pub mod thing;
pub mod warden;

/// Trusts everything, for machines that nobody sits at.
pub const VARIABLE: &str = "LONGHAUL_TRUST";
