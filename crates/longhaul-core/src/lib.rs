//! The words of Longhaul and the ports through which it meets the world.
//!
//! Never: reads a clock, draws a random number, waits for anything, or speaks
//! SQL, HTTP or a provider's JSON. Time and ids are handed in by the caller.

pub mod access;
pub mod chain;
pub mod change;
pub mod event;
pub mod failure;
pub mod id;
pub mod image;
pub mod message;
pub mod net;
pub mod note;
pub mod oauth;
pub mod policy;
pub mod port;
pub mod raw;
pub mod redact;
pub mod request;
pub mod schema;
pub mod status;
pub mod suggest;
pub mod task;
#[cfg(feature = "template")]
pub mod template;
mod text_macros;
pub mod time;
pub mod usage;
