//! Tests of the Responses API over real sockets: requests, streams and failures.

mod failures;
pub(crate) mod harness;
mod provider_switch;
mod requests;
mod spec;
mod streams;
