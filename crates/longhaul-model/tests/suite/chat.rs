//! Tests of the Chat Completions API over real sockets: requests, streams, failures and the quirks
//! of servers.

mod failures;
pub(crate) mod harness;
mod nonstandard_streams;
mod quirks;
mod requests;
mod streams;
