//! The Chat Completions API over real sockets: what is sent, what is heard, what
//! fails, and where servers differ.

mod failures;
pub(crate) mod kit;
mod odd;
mod quirks;
mod requests;
mod streams;
