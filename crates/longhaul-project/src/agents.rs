//! Agents as files: Markdown with YAML front matter, parsed into the engine's `Agent`.
//!
//! Invariant: an agent whose file needs something that this build does not support is not run. The
//! file is reported as unsupported, not as invalid.

pub mod built_in;
pub mod check;
mod claude;
pub(crate) mod diagnostics;
pub mod diff;
pub mod escape;
pub(crate) mod files;
mod front_matter;
pub mod load;
pub mod load_context;
pub mod loaded_agents;
pub mod problem;
mod rule;
mod runtime_fields;
mod sandbox_field;
pub mod scaffold;
pub(crate) mod tools;
