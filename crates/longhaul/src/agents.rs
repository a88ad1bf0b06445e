//! Agents as files: Markdown with YAML front matter, read into the engine's `Agent`.
//!
//! Never: runs an agent whose file asks for what this build can't do. Such a
//! file is told apart from a broken one, and refused like it.

pub mod change;
pub mod check;
mod claude;
pub(crate) mod cut;
pub mod draft;
mod files;
mod front;
mod house;
pub(crate) mod in_code;
mod later;
pub mod load;
pub mod loaded;
mod output;
pub mod problem;
mod program;
mod rule;
pub(crate) mod sheet;
pub mod shelf;
pub mod shipped;
mod template;
mod tools;
pub mod verbatim;
mod wishes;
