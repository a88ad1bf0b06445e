//! Longhaul, a durable runtime for AI agents: the facade that programs use.
//!
//! Never: holds a business rule. It names the concrete parts, puts them
//! together, and passes words on.

pub mod agents;
pub mod assemble;
pub mod config;
mod inside;
mod like;
pub mod local_key;
pub mod marker;
pub mod mcp;
pub mod skills;
pub mod span;
pub mod stateless;
pub mod trust;
pub mod written;
