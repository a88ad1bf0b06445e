//! The conversation of a run in responses.

use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The conversation of a run: messages that its model has received and sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Transcript)]
pub struct TranscriptView {
    /// Id of the run that had the conversation.
    #[schema(schema_with = schema::run_id_schema)]
    pub run: RunId,
    /// Model that the run uses. `None` means that no model was called yet.
    pub model: Option<String>,
    /// System prompt of the run. `None` means that the prompt was deleted.
    pub system: Option<String>,
    /// Messages of the conversation, in order.
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<Arc<Message>>,
}
