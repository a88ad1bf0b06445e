//! What a project would run on its own is a stranger's code until a person has
//! looked at it: the servers of `.mcp.json`, programs that look at the world for
//! an agent, and the program that messages are handed to.
//!
//! Never: decided by the project. The decisions lie outside of it, each bound to
//! the hash of what was shown.

pub mod book;
pub mod found;
pub mod thing;
pub mod warden;

/// Trusts everything, for machines that nobody sits at.
pub const VARIABLE: &str = "LONGHAUL_TRUST";
