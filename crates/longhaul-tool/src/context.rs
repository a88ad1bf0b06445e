//! Those who tell a run what the world looks like: a program, or an address.
//!
//! Never: a shell, more than a model could use, or a wait without an end.

mod answer;
mod command;
mod url;

pub use crate::context::command::CommandEye;
pub use crate::context::url::UrlEye;
