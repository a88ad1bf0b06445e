//! The ports: what the house asks of the world, and nothing about how.
//!
//! Never: an adapter. Each port is `dyn`, narrow, and has a conformance suite.

pub mod context;
pub mod easel;
pub mod keyring;
pub mod model;
pub mod outbound;
pub mod redact;
pub mod shelves;
pub mod store;
pub mod tool;
