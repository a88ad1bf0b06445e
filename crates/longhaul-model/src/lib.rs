//! Adapters that send requests to model providers and decode their replies.
//!
//! Invariant: a provider's JSON stays inside its adapter. This crate does not know leases, gates or
//! journals.

mod adapter;
pub mod anthropic;
mod call_ids;
pub mod cassette;
pub mod chat;
mod conversation;
mod decode_error;
mod error_mapping;
mod exchange;
pub mod http;
pub mod image_source;
mod images;
mod json_object;
pub mod key;
mod lenient_json;
mod lenient_object;
pub mod mock;
pub mod model_list;
pub mod prices;
pub mod providers;
mod request_cache;
pub mod responses;
pub mod scripted;
pub mod settings;
mod sse;
mod token_counts;
mod tool_table;
