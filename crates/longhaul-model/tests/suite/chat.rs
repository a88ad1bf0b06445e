//! The Chat Completions API over real sockets: what is sent, what is heard, what
//! fails, and where servers differ.

mod failures;
pub(crate) mod harness;
mod nonstandard_streams;
mod quirks;
mod requests;
mod streams;
