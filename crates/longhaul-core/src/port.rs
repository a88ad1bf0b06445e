//! The ports: what the house asks of the world, and nothing about how.
//!
//! Never: an adapter. Each port is `dyn`, narrow, and has a conformance suite.

pub mod auth;
pub mod context;
pub mod image_sink;
pub mod model;
pub mod outbound;
pub mod records;
pub mod redact;
pub mod store;
pub mod tool;
