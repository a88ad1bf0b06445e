//! Trust: a project's commands, outbound requests and MCP servers are blocked until a person has
//! approved them.
//!
//! Invariant: decisions are stored outside the project. Each one covers a digest of the settings
//! that were shown, and a digest of every project file that they run.

pub mod decisions;
pub mod item;
pub mod items;
pub(crate) mod servers;

/// Environment variable that trusts all projects, for unattended machines.
pub const TRUST_VAR: &str = "LONGHAUL_TRUST";
