//! Tests of the Messages API over real sockets: requests, streams and failures.

mod failures;
pub(crate) mod harness;
mod requests;
mod spec;
mod streams;
mod transport;
