//! The HTTP face: API, event streams and pages over the engine's handle.
//!
//! Never: reaches a store or a model past the engine, and never a door without
//! a key, not even on loopback.

mod api;
mod api_router;
mod app;
mod body;
mod caller;
mod connection;
mod connections;
mod error_mapping;
mod idempotency;
mod limits;
mod middleware;
mod openapi;
mod openapi_types;
pub mod options;
mod page;
mod params;
mod peer;
mod problem;
mod rate_limit;
mod response;
mod routes;
mod serve;
mod stream;

pub use app::App;
pub use openapi::document;
pub use options::Options;
pub use serve::serve;
