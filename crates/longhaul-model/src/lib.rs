//! Adapters that ask a model and bring back its reply.
//!
//! Never: knows of leases, gates or journals. A provider's JSON stays inside
//! its adapter and is converted at the door.

pub mod anthropic;
mod blame;
mod exchange;
mod fields;
pub mod http;
mod kept;
pub mod key;
pub mod pictures;
pub mod scripted;
mod sse;
