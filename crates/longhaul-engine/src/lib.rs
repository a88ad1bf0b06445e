//! The engine: the only room that waits.
//!
//! Never: decides what a run does (that is `longhaul-run`), and never names a
//! concrete store, provider or sandbox.

pub mod agent;
pub mod clock;
