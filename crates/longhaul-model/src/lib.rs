//! Adapters that ask a model and bring back its reply.
//!
//! Never: knows of leases, gates or journals. A provider's JSON stays inside
//! its adapter and is converted at the door.

mod adapter;
mod album;
pub mod anthropic;
mod arguments;
mod blame;
pub mod cassette;
pub mod chat;
mod counts;
mod exchange;
mod fault;
mod fields;
pub mod http;
mod ids;
mod kept;
pub mod key;
pub mod mock;
mod object;
mod owed;
pub mod pictures;
pub mod prices;
pub mod responses;
pub mod roll;
pub mod scripted;
mod secrets;
pub mod settings;
mod sse;
mod surrogates;
mod table;
mod talk;
