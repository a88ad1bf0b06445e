//! Streams of server-sent events: a journal as it grows, or all of them.
//!
//! Never: an event twice or out of order, and never one without its place.

pub(crate) mod all;
pub(crate) mod run;
pub(crate) mod sse;
