//! Context providers, which describe the current state of the world to a run: a program or an HTTP
//! endpoint.

mod command;
mod http;
mod response;

pub use crate::context::command::CommandContextProvider;
pub use crate::context::http::HttpContextProvider;
