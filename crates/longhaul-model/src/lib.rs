//! Adapters that ask a model and bring back its reply.
//!
//! Never: knows of leases, gates or journals. A provider's JSON stays inside
//! its adapter and is converted at the door.

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
mod request_cache;
pub mod responses;
pub mod scripted;
mod secrets;
pub mod settings;
mod sse;
mod surrogates;
mod token_counts;
mod tool_results;
mod tool_table;
