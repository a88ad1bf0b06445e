//! Threads (conversations that successive runs share) in requests and responses.

use longhaul_core::message::Message;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Newest messages of a thread (a conversation that successive runs share).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ThreadMessages)]
pub struct ThreadMessagesView {
    /// Name of the thread.
    pub thread: String,
    /// Number of all messages of the thread.
    pub count: u64,
    /// Newest messages of the thread, oldest first.
    #[schema(value_type = Vec<Object>)]
    pub data: Vec<Message>,
}

/// A message to add to a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NewThreadMessage)]
#[serde(deny_unknown_fields)]
pub struct NewThreadMessageBody {
    /// Author of the message: the user (default) or the assistant.
    #[serde(default)]
    pub role: ThreadMessageRole,
    /// Text of the message, at most 1 MiB.
    #[schema(min_length = 1)]
    pub text: String,
}

/// Author of a message in a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThreadMessageRole {
    /// The message is from a person.
    #[default]
    User,
    /// The message is from the model.
    Assistant,
}

/// Number of messages in a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ThreadCount)]
pub struct ThreadCountView {
    /// Name of the thread.
    pub thread: String,
    /// Number of all messages of the thread.
    pub count: u64,
}

/// Result of clearing a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ClearedThread)]
pub struct ClearedThreadView {
    /// Name of the thread.
    pub thread: String,
    /// Number of deleted messages.
    pub deleted: u64,
}
