//! The conversation and the events of a run, the explanation of its status, and threads
//! (conversations that successive runs share).

use std::sync::Arc;

use longhaul_core::id::RunId;
use longhaul_core::message::Message;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The conversation of a run: messages that its model has received and sent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Transcript)]
pub struct TranscriptView {
    /// Id of the run that had the conversation.
    pub run: RunId,
    /// Model that the run uses. `None` means that no model was called yet.
    pub model: Option<String>,
    /// System prompt of the run. `None` means that the prompt was deleted.
    pub system: Option<String>,
    /// Messages of the conversation, in order.
    #[schema(value_type = Vec<Object>)]
    pub messages: Vec<Arc<Message>>,
    /// Compactions of the conversation, oldest first. After a compaction, the first message
    /// contains the task and the newest summary instead of the older messages, which only the
    /// journal keeps.
    #[serde(default)]
    pub compactions: Vec<CompactionView>,
}

/// A compaction of a conversation: a summary has replaced its older messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Compaction)]
pub struct CompactionView {
    /// Number of the turn after which the conversation was compacted.
    pub after_turn: u32,
    /// Time of the compaction.
    pub at: Timestamp,
    /// Number of messages that the summary has replaced.
    pub replaced_messages: usize,
    /// Model that wrote the summary.
    pub model: String,
}

/// OpenAPI schema of a journal event
/// ([`JournalEntryEnvelope`](longhaul_core::event::entry::JournalEntryEnvelope)).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Id of the run whose journal has the event.
    run: RunId,
    /// Sequence number of the event in the run's journal, from 1.
    seq: u64,
    /// Time at which the event was appended.
    at: Timestamp,
    /// Type of the event, such as `run.created`.
    #[serde(rename = "type")]
    kind: String,
    /// Version of the event's `data` format.
    v: u16,
    /// Number of the turn to which the event belongs.
    #[schema(required = false)]
    turn: u32,
    /// Epoch of the claim under which the event was written. Each claim of a run by a worker has a
    /// higher epoch.
    epoch: u64,
    /// Data of the event, in the format of its `type` and `v`.
    data: Value,
}

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

/// An explanation of a run's status, and a command to run next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Why)]
pub struct RunExplanation {
    /// Id of the run.
    pub run: RunId,
    /// Status of the run, such as running, waiting or completed.
    pub status: Status,
    /// Reason for the status as a short code.
    pub reason: Option<String>,
    /// Explanation of the status in a sentence.
    pub message: String,
    /// Shell command to run next. Empty if nothing needs to be done.
    pub command: String,
}
