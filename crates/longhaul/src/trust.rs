//! What a project would run, send or open on its own waits until a person has looked at it.
//!
//! Invariant: decisions lie outside the project. Each one covers a digest of the settings that
//! were shown, and one of every file of the project that they run.

pub mod decisions;
pub mod egress;
mod files;
pub mod item;
pub mod items;
mod servers;

/// Trusts everything, for machines that nobody sits at.
pub const TRUST_VAR: &str = "LONGHAUL_TRUST";
