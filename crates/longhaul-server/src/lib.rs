//! The HTTP face: API, event streams and pages over the engine's handle.
//!
//! Never: reaches a store or a model past the engine, and never a door without
//! a key, not even on loopback.

mod api;
mod app;
mod ask;
mod body;
mod caller;
mod connection;
mod connections;
mod described;
mod guard;
mod limits;
mod once;
mod openapi;
pub mod options;
mod page;
mod params;
mod problem;
mod rates;
mod reply;
mod routes;
mod serve;
mod spelled;
mod stream;
mod trouble;

pub use app::App;
pub use openapi::document;
pub use options::Options;
pub use serve::serve;
