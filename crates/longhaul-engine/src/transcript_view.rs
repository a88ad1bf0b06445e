//! The conversation of a run as answers show it.
//!
//! Never: a message without its place.

use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use serde::Serialize;

/// What a model has been told and has said.
#[derive(Debug, Clone, Serialize)]
pub struct TranscriptView {
    /// Of which run.
    pub run: RunId,
    /// The model that is asked; none: nobody was asked yet.
    pub model: Option<String>,
    /// The system prompt; none: it is not kept any more.
    pub system: Option<String>,
    /// The conversation, in order.
    pub messages: Vec<Arc<Message>>,
}
