//! Handlers: Rust functions that are registered as agents. A run of a handler is journaled like any
//! other run: an internal model calls the function once as a tool, and ends the run with the
//! function's result.
//!
//! Invariant: a call whose result is in the journal is not repeated. A call that a crash
//! interrupted is repeated with the same idempotency key, unless `Handler::once` forbids it.

pub(crate) mod agent;
pub(crate) mod function;
mod journaled_calls;
pub(crate) mod request;
pub(crate) mod threads;
