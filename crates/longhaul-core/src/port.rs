//! Ports: traits for everything outside the domain, such as stores, models and tools.
//!
//! Adapters live in other crates. Every port is `dyn`-compatible and has a conformance suite.

pub(crate) mod append_refusal;
pub mod auth;
pub mod context;
pub mod image_sink;
pub mod model;
pub mod outbound;
pub mod queue;
pub mod records;
pub mod redact;
pub mod repositories;
pub mod run_filter;
pub mod sandbox;
pub mod schedules;
pub mod store;
pub mod tool;
