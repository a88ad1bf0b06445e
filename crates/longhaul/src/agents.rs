//! Agents as files: Markdown with YAML front matter, read into the engine's `Agent`.
//!
//! Never: runs an agent whose file asks for what this build can't do. Such a
//! file is told apart from a broken one, and refused like it.

pub mod built_in;
pub mod check;
mod claude;
pub(crate) mod diagnostics;
pub mod diff;
pub mod escape;
mod executable;
mod files;
mod front_matter;
pub(crate) mod in_code;
pub mod load;
pub mod load_context;
pub mod loaded_agents;
mod output;
pub mod problem;
mod project_rules;
mod rule;
mod runtime_fields;
pub mod scaffold;
mod shell_check;
pub(crate) mod split;
mod template;
mod tools;
