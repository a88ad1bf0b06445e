//! Those who tell a run what the world looks like: a program, or an address.
//!
//! Never: a shell, more than a model could use, or a wait without an end.

mod command;
mod http;
mod response;

pub use crate::context::command::CommandContextProvider;
pub use crate::context::http::HttpContextProvider;
