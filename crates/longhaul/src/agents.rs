//! Agents as files: Markdown with YAML front matter, read into the engine's `Agent`.
//!
//! Never: runs an agent whose file asks for what this build can't do. Such a
//! file is told apart from a broken one, and refused like it.

pub mod check;
mod cut;
mod front;
mod later;
pub mod load;
pub mod problem;
mod rule;
mod sheet;
pub mod shipped;
mod template;
