//! The Messages API over real sockets: what is sent, what is heard, what fails.

mod failures;
pub(crate) mod harness;
mod requests;
mod spec;
mod streams;
mod transport;
