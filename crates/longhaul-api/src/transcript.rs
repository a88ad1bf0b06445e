//! The conversation of a run as answers show it.
//!
//! Never: a message without its place.

use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// What a model has been told and has said.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Transcript)]
pub struct TranscriptView {
    /// Of which run.
    #[schema(schema_with = schema::run_id)]
    pub run: RunId,
    /// The model that is asked; none: nobody was asked yet.
    pub model: Option<String>,
    /// The system prompt; none: it is not kept any more.
    pub system: Option<String>,
    /// The conversation, in order.
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<Arc<Message>>,
}
