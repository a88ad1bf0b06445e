//! An encoded conversation: each message is encoded once and then reused.
//!
//! The encoding of a message depends only on the messages before it, so the next turn encodes only
//! new messages. If a message changes, that message and all later messages are encoded again.
//!
//! Invariant: every tool call has a result and every result has a call, in any API.

use std::fmt;
use std::sync::{Arc, Weak};

use longhaul_core::id::CallId;
use longhaul_core::message::{Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;
use serde::Serialize;

use crate::call_ids::ToolCallIds;
use crate::images::EncodedImages;
use crate::request_cache::ByteSize;
use crate::tool_results::{MatchedToolResults, NO_RESULT, PendingToolCall, match_tool_results};

/// Encodes the messages of a conversation for a provider API.
pub(crate) trait MessageEncoder {
    /// Kind of an encoded piece, such as its role, by which pieces are combined into messages.
    type Kind: Copy + fmt::Debug + Send + Sync;

    /// Whether the placeholder for a missing tool result is marked as an error.
    const IS_MISSING_RESULT_ERROR: bool = true;

    fn encode_user_message(&self, target: &mut PieceCollector<'_, Self::Kind>, parts: &[Part]);

    fn encode_tool_result(
        &self,
        target: &mut PieceCollector<'_, Self::Kind>,
        call_id: &str,
        result: &ToolResult,
    );

    /// Encodes a reply of the model as an assistant message.
    fn encode_reply(&self, target: &mut PieceCollector<'_, Self::Kind>, reply: &Reply);

    /// Returns the parts of tool results, such as images, that must be sent as user messages after
    /// the results of all calls. Each inner list is one message.
    fn user_messages_after_results(
        &self,
        _: &[(PendingToolCall, &ToolResult)],
        _: &EncodedImages,
    ) -> Vec<Vec<Part>> {
        Vec::new()
    }
}

/// An encoded piece of the conversation, depending on the API: a content block, a complete message,
/// or an item such as a message, a tool call or reasoning.
#[derive(Debug)]
pub(crate) struct EncodedPiece<K> {
    pub(crate) kind: K,
    pub(crate) json: RawJson,
}

/// Collects the encoded pieces of one message.
#[derive(Debug)]
pub(crate) struct PieceCollector<'a, K> {
    pub(crate) images: &'a EncodedImages,
    pieces: Vec<EncodedPiece<K>>,
    /// Tool calls of the message, for which the next message must contain results.
    pending_calls: Vec<PendingToolCall>,
    ids: &'a mut ToolCallIds,
    /// Index of the message in the conversation, from 0.
    message_index: usize,
}

impl<K> PieceCollector<'_, K> {
    /// Adds a piece: the given value, encoded as JSON.
    pub(crate) fn add_piece(&mut self, kind: K, value: &impl Serialize) {
        let json = RawJson::from_serialize(value);
        self.pieces.push(EncodedPiece { kind, json });
    }

    /// Adds a piece that is already encoded as JSON. Its bytes are not changed.
    pub(crate) fn add_raw_piece(&mut self, kind: K, json: &RawJson) {
        let json = json.clone();
        self.pieces.push(EncodedPiece { kind, json });
    }

    /// Assigns an ID to a tool call and adds the call to the calls that need a result.
    pub(crate) fn register_tool_call(
        &mut self,
        call: &ToolCall,
        original_id: &str,
        assign: AssignCallId,
    ) -> String {
        let index = self.pending_calls.len() + 1;
        let id = assign(self.ids, original_id, self.message_index, index);
        self.pending_calls.push(PendingToolCall {
            id: id.clone(),
            original_id: call.id.clone(),
            index,
        });
        id
    }
}

/// Function that assigns an ID to a tool call. Its arguments are the IDs used so far, the original
/// ID, the index of the message and the number of the call in the message.
type AssignCallId = fn(&mut ToolCallIds, &str, usize, usize) -> String;

/// An encoded message, with its tool calls that still need a result.
#[derive(Debug)]
pub(crate) struct EncodedMessage<K> {
    /// The message that was encoded. Messages are compared by address, and the weak reference keeps
    /// the address from being reused.
    source: Weak<Message>,
    pub(crate) pieces: Vec<EncodedPiece<K>>,
    pending_calls: Vec<PendingToolCall>,
    /// Total length in bytes of all pieces up to and including this message.
    cumulative_bytes: usize,
}

/// The encoded messages of a conversation, and the call IDs used in them.
#[derive(Debug)]
pub(crate) struct EncodedConversation<K> {
    pub(crate) messages: Vec<EncodedMessage<K>>,
    ids: ToolCallIds,
}

impl<K> Default for EncodedConversation<K> {
    fn default() -> Self {
        Self { messages: Vec::new(), ids: ToolCallIds::default() }
    }
}

impl<K> ByteSize for EncodedConversation<K> {
    fn byte_size(&self) -> usize {
        let text = self.messages.last().map_or(0, |last| last.cumulative_bytes);
        text + self.messages.len() * size_of::<EncodedMessage<K>>()
    }
}

impl<K: Copy> EncodedConversation<K> {
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
    pub(crate) fn push<T>(&mut self, encoder: &T, message: &Arc<Message>, images: &EncodedImages)
    where
        T: MessageEncoder<Kind = K>,
    {
        let last = self.messages.last();
        let (pending, previous_bytes) =
            last.map_or((&[][..], 0), |last| (&last.pending_calls, last.cumulative_bytes));
        let mut target = PieceCollector {
            images,
            pieces: Vec::new(),
            pending_calls: Vec::new(),
            ids: &mut self.ids,
            message_index: self.messages.len(),
        };
        match &**message {
            Message::User(parts) => {
                encode_placeholder_results(encoder, &mut target, pending);
                encoder.encode_user_message(&mut target, parts);
            }
            Message::Results(results) => {
                encode_tool_results(encoder, &mut target, pending.to_vec(), results)
            }
            Message::Assistant(reply) => {
                encode_placeholder_results(encoder, &mut target, pending);
                encoder.encode_reply(&mut target, reply);
            }
        }
        let PieceCollector { pieces, pending_calls: pending, .. } = target;
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
    pub(crate) fn placeholder_results<T: MessageEncoder<Kind = K>>(
        &mut self,
        encoder: &T,
    ) -> Vec<EncodedPiece<K>> {
        let images = EncodedImages::default();
        let mut target = PieceCollector {
            images: &images,
            pieces: Vec::new(),
            pending_calls: Vec::new(),
            message_index: self.messages.len(),
            ids: &mut self.ids,
        };
        if let Some(last) = self.messages.last() {
            encode_placeholder_results(encoder, &mut target, &last.pending_calls);
        }
        target.pieces
    }
}

/// Encodes placeholder results for the given tool calls.
fn encode_placeholder_results<T: MessageEncoder>(
    encoder: &T,
    target: &mut PieceCollector<'_, T::Kind>,
    pending: &[PendingToolCall],
) {
    for pending in pending {
        let placeholder = ToolResult {
            call: CallId { turn: 0, index: 0 },
            id: String::new(),
            content: vec![Part::Text(NO_RESULT.into())],
            is_error: T::IS_MISSING_RESULT_ERROR,
        };
        encoder.encode_tool_result(target, &pending.id, &placeholder);
    }
}

/// Encodes tool results in the order of their calls. Calls without a result stay pending.
fn encode_tool_results<T: MessageEncoder>(
    encoder: &T,
    target: &mut PieceCollector<'_, T::Kind>,
    pending: Vec<PendingToolCall>,
    results: &[ToolResult],
) {
    let MatchedToolResults { matched, missing, orphans } = match_tool_results(pending, results);
    for (pending, result) in &matched {
        encoder.encode_tool_result(target, &pending.id, result);
    }
    let user_messages = encoder.user_messages_after_results(&matched, target.images);
    if orphans.is_empty() && user_messages.is_empty() {
        target.pending_calls = missing;
        return;
    }
    // A result without a call is sent as a user message. User messages must come after the results
    // of all calls.
    encode_placeholder_results(encoder, target, &missing);
    for parts in user_messages {
        encoder.encode_user_message(target, &parts);
    }
    for orphan in orphans {
        encoder.encode_user_message(target, &orphan.content);
    }
}
