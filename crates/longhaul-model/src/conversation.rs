//! An encoded conversation: each message is encoded once and then reused.
//!
//! The encoding of a message depends only on the messages before it, so the next turn encodes only
//! new messages. If a message changes, that message and all later messages are encoded again.
//!
//! Invariant: every tool call has a result and every result has a call, in any API.

use std::sync::{Arc, Weak};

use longhaul_core::id::CallId;
use longhaul_core::message::{Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;
use serde::Serialize;

use crate::call_ids::ToolCallIds;
use crate::images::EncodedImages;

/// Encodes the messages of a conversation for a provider API.
pub(crate) trait MessageEncoder {
    /// Whether the placeholder for a missing tool result is marked as an error.
    const IS_MISSING_RESULT_ERROR: bool = true;

    fn encode_user_message(&self, out: &mut Pieces<'_>, parts: &[Part]);

    fn encode_tool_result(&self, out: &mut Pieces<'_>, id: &str, result: &ToolResult);

    /// Encodes a reply of the model as an assistant message.
    fn encode_reply(&self, out: &mut Pieces<'_>, reply: &Reply);

    /// Returns the parts of tool results, such as images, that must be sent as user messages after
    /// the results of all calls. Each inner list is one message.
    fn messages_after_results(
        &self,
        _: &[(PendingCall, &ToolResult)],
        _: &EncodedImages,
    ) -> Vec<Vec<Part>> {
        Vec::new()
    }
}

/// Role of an encoded piece of the conversation, by which pieces are combined into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
    Tool,
}

/// An encoded piece of the conversation, depending on the API: a content block, a complete message,
/// or an item such as a message, a tool call or reasoning.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) role: Role,
    pub(crate) json: RawJson,
}

/// Collects the encoded pieces of one message.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    pub(crate) images: &'a EncodedImages,
    pieces: Vec<Piece>,
    /// Tool calls of the message, for which the next message must contain results.
    pending_calls: Vec<PendingCall>,
    ids: &'a mut ToolCallIds,
    /// Index of the message in the conversation, from 0.
    message_index: usize,
}

impl<'a> Pieces<'a> {
    const fn new(
        images: &'a EncodedImages,
        ids: &'a mut ToolCallIds,
        message_index: usize,
    ) -> Self {
        Self { images, pieces: Vec::new(), pending_calls: Vec::new(), ids, message_index }
    }

    /// Adds a piece: the given value, encoded as JSON. The bytes of raw JSON are not changed.
    pub(crate) fn add_piece(&mut self, role: Role, value: &impl Serialize) {
        let json = RawJson::from_serialize(value);
        self.pieces.push(Piece { role, json });
    }

    /// Assigns an ID to a tool call and adds the call to the calls that need a result.
    pub(crate) fn register_call(&mut self, call: &ToolCall, id: &str, assign: AssignId) -> String {
        let index = self.pending_calls.len() + 1;
        let id = assign(self.ids, id, self.message_index, index);
        self.pending_calls.push(PendingCall {
            id: id.clone(),
            original_id: call.id.clone(),
            index,
        });
        id
    }
}

/// Function that assigns an ID to a tool call. Its arguments are the IDs used so far, the original
/// ID, the index of the message and the number of the call in the message.
type AssignId = fn(&mut ToolCallIds, &str, usize, usize) -> String;

/// An encoded message, with its tool calls that still need a result.
#[derive(Debug)]
pub(crate) struct EncodedMessage {
    /// The message that was encoded. Messages are compared by address, and the weak reference keeps
    /// the address from being reused.
    source: Weak<Message>,
    pub(crate) pieces: Vec<Piece>,
    pending_calls: Vec<PendingCall>,
    /// Total length in bytes of all pieces up to and including this message.
    cumulative_bytes: usize,
}

/// The encoded messages of a conversation, and the call IDs used in them.
#[derive(Debug, Default)]
pub(crate) struct EncodedConversation {
    pub(crate) messages: Vec<EncodedMessage>,
    ids: ToolCallIds,
}

impl EncodedConversation {
    /// Returns the approximate size of the encoded conversation in memory.
    pub(crate) fn byte_size(&self) -> usize {
        let text = self.messages.last().map_or(0, |last| last.cumulative_bytes);
        text + self.messages.len() * size_of::<EncodedMessage>()
    }

    /// Keeps the encoded messages that still match the start of the given conversation and drops
    /// the others. Returns the number of messages kept.
    pub(crate) fn keep_matching_prefix(&mut self, messages: &[Arc<Message>]) -> usize {
        let pairs = self.messages.iter().zip(messages);
        let kept_count = pairs
            .take_while(|(entry, message)| {
                std::ptr::eq(entry.source.as_ptr(), Arc::as_ptr(message))
            })
            .count();
        if kept_count < self.messages.len() {
            self.messages.truncate(kept_count);
            self.ids.remove_ids_since_message(kept_count);
        }
        kept_count
    }

    /// Encodes the next message and appends it to the conversation.
    pub(crate) fn push(
        &mut self,
        encoder: &impl MessageEncoder,
        message: &Arc<Message>,
        images: &EncodedImages,
    ) {
        let last = self.messages.last();
        let (pending, previous_bytes) =
            last.map_or((&[][..], 0), |last| (&last.pending_calls, last.cumulative_bytes));
        let mut out = Pieces::new(images, &mut self.ids, self.messages.len());
        match &**message {
            Message::User(parts) => {
                encode_placeholder_results(encoder, &mut out, pending);
                encoder.encode_user_message(&mut out, parts);
            }
            Message::Results(results) => {
                encode_tool_results(encoder, &mut out, pending.to_vec(), results)
            }
            Message::Assistant(reply) => {
                encode_placeholder_results(encoder, &mut out, pending);
                encoder.encode_reply(&mut out, reply);
            }
        }
        let Pieces { pieces, pending_calls: pending, .. } = out;
        let lengths = pieces.iter().map(|piece| piece.json.as_str().len());
        self.messages.push(EncodedMessage {
            source: Arc::downgrade(message),
            cumulative_bytes: previous_bytes + lengths.sum::<usize>(),
            pieces,
            pending_calls: pending,
        });
    }

    /// Returns placeholder results for the tool calls at the end of the conversation that have no
    /// result.
    pub(crate) fn placeholders(&mut self, encoder: &impl MessageEncoder) -> Vec<Piece> {
        let images = EncodedImages::default();
        let mut out = Pieces::new(&images, &mut self.ids, self.messages.len());
        if let Some(last) = self.messages.last() {
            encode_placeholder_results(encoder, &mut out, &last.pending_calls);
        }
        out.pieces
    }
}

/// Encodes placeholder results for the given tool calls.
fn encode_placeholder_results<T: MessageEncoder>(
    encoder: &T,
    out: &mut Pieces<'_>,
    pending: &[PendingCall],
) {
    for pending in pending {
        let placeholder = ToolResult {
            call: CallId { turn: 0, index: 0 },
            id: String::new(),
            content: vec![Part::Text(NO_RESULT.into())],
            is_error: T::IS_MISSING_RESULT_ERROR,
        };
        encoder.encode_tool_result(out, &pending.id, &placeholder);
    }
}

/// Encodes tool results in the order of their calls. Calls without a result stay pending.
fn encode_tool_results<T: MessageEncoder>(
    encoder: &T,
    out: &mut Pieces<'_>,
    pending: Vec<PendingCall>,
    results: &[ToolResult],
) {
    let mut unmatched: Vec<Option<&ToolResult>> = results.iter().map(Some).collect();
    let (mut matched, mut missing) = (Vec::new(), Vec::new());
    for pending in pending {
        match index_of_result(&unmatched, &pending).and_then(|index| unmatched[index].take()) {
            None => missing.push(pending),
            Some(result) => matched.push((pending, result)),
        }
    }
    for (pending, result) in &matched {
        encoder.encode_tool_result(out, &pending.id, result);
    }
    let user_messages = encoder.messages_after_results(&matched, out.images);
    let orphans: Vec<&ToolResult> = unmatched.into_iter().flatten().collect();
    if orphans.is_empty() && user_messages.is_empty() {
        out.pending_calls = missing;
        return;
    }
    // A result without a call is sent as a user message. User messages must come after the results
    // of all calls.
    encode_placeholder_results(encoder, out, &missing);
    for parts in user_messages {
        encoder.encode_user_message(out, &parts);
    }
    for orphan in orphans {
        encoder.encode_user_message(out, &orphan.content);
    }
}

/// Text sent as the result of a call without a result. Providers reject a conversation in which a
/// call has no result.
const NO_RESULT: &str = "the result of this call is unknown";

/// A tool call that has no result yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingCall {
    /// ID that identifies the tool call in the request to the provider. It may differ from
    /// `original_id`.
    pub(crate) id: String,
    /// ID that the provider gave the call in its reply.
    pub(crate) original_id: String,
    /// Position of the call among the calls of its reply, from 1.
    pub(crate) index: usize,
}

/// Returns the position of the result of a call, found by call index, or else by the provider's call
/// ID.
fn index_of_result(unmatched: &[Option<&ToolResult>], pending: &PendingCall) -> Option<usize> {
    let has_matching_id =
        |result: &ToolResult| result.id.is_empty() || result.id == pending.original_id;
    let by_index = unmatched.iter().position(|result| {
        result
            .is_some_and(|one| usize::from(one.call.index) == pending.index && has_matching_id(one))
    });
    by_index.or_else(|| {
        unmatched.iter().position(|result| {
            result.is_some_and(|one| !one.id.is_empty() && one.id == pending.original_id)
        })
    })
}

/// Whether a message part is not empty. Providers reject empty blocks.
pub(crate) fn is_non_empty_part(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::Image(_) => true,
    }
}
