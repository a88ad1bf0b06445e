//! Domain types of Longhaul and the ports (traits) that adapters implement.
//!
//! Invariant: nothing here reads a clock, draws random numbers, blocks, or does I/O.
//! Callers pass in the time and generated ids.

pub mod access;
pub mod chain;
pub mod change;
pub mod checkpoint;
pub mod duration;
pub mod event;
pub mod failure;
pub mod form;
pub mod glob;
pub mod id;
pub mod image;
pub mod message;
pub mod net;
pub mod note;
pub mod oauth;
pub mod openapi;
pub mod output_reference;
pub mod policy;
pub mod port;
pub mod position;
pub mod raw;
pub mod redact;
pub mod repo;
pub mod request;
pub mod sanitize;
pub mod schedule;
pub mod schema;
pub mod slug;
pub mod status;
pub mod suggest;
pub mod task;
pub mod task_text;
#[cfg(feature = "template")]
pub mod template;
mod text_macros;
pub mod time;
pub mod usage;
pub mod wait;
