//! Event streams (server-sent events): the journal of one run, or the events of all runs.
//!
//! Invariant: every journal event has an id, and events are sent once and in order.

pub(crate) mod all;
pub(crate) mod run;
pub(crate) mod sse;
