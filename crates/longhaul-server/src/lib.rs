//! HTTP server: the API, event streams and web pages on top of the engine's handle.
//!
//! Invariant: a route needs a key unless it is explicitly listed as public. Loopback callers are no
//! exception, unless the option `open_loopback` is set. The server reaches the store and the models
//! only through the engine.

mod api;
mod api_router;
mod app;
mod body;
mod call;
mod connections;
mod error_mapping;
mod idempotency;
mod in_process;
mod limits;
mod middleware;
mod openapi;
pub mod options;
mod page;
mod params;
mod peer;
mod problem;
mod rate_limit;
mod routes;
mod serve;
mod stream;

pub use api_router::openapi_document;
pub use app::App;
pub use in_process::InProcessApi;
pub use options::ServerOptions;
pub use serve::serve;
