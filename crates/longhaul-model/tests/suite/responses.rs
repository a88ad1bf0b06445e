//! The Responses API over real sockets: what is sent, what is heard, what fails.

mod failures;
pub(crate) mod harness;
mod provider_switch;
mod requests;
mod spec;
mod streams;
