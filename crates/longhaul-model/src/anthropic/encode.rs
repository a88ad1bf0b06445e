//! Encodes a conversation for the Messages API.
//!
//! Invariant: consecutive messages have different roles, and the bytes of arguments, signed
//! thinking blocks and unknown blocks are never changed.

use longhaul_core::message::{Block, Part, Reply, ToolResult};
use longhaul_core::raw::RawJson;
use serde::Serialize;

use crate::adapter::EncodedRequestParts;
use crate::anthropic::wire::{MessagesApi, NAME_MAX};
use crate::call_ids::{self, ToolCallIds};
use crate::conversation::{self, EncodedPiece, MessageEncoder};
use crate::images::{EncodedImages, image_placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::tool_arguments_as_object;
use crate::tool_results::is_non_empty_part;

/// Maximum number of user messages that are marked for the provider's prompt cache: the newest
/// message, which the next turn will find in the cache, and the user message before it, which this
/// turn finds in the cache.
const CACHE_MARKS_MAX: usize = 2;

/// Role of a message in the Messages API: user or assistant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessageRole {
    User,
    Assistant,
}

type PieceCollector<'a> = conversation::PieceCollector<'a, MessageRole>;

impl MessageEncoder for MessagesApi {
    type Kind = MessageRole;

    fn encode_user_message(&self, target: &mut PieceCollector<'_>, parts: &[Part]) {
        for part in parts.iter().filter(|part| is_non_empty_part(part)) {
            target.add_piece(MessageRole::User, &encode_message_part(part, target.images));
        }
    }

    fn encode_tool_result(&self, target: &mut PieceCollector<'_>, id: &str, result: &ToolResult) {
        let parts = result.content.iter().filter(|part| is_non_empty_part(part));
        let parts: Vec<JsonObject> =
            parts.map(|part| encode_message_part(part, target.images)).collect();
        let block = JsonObject::with_type_field("tool_result")
            .with_field("tool_use_id", id)
            .with_optional_field("content", (!parts.is_empty()).then_some(&parts))
            .with_optional_field("is_error", result.is_error.then_some(&true));
        target.add_piece(MessageRole::User, &block);
    }

    fn encode_reply(&self, target: &mut PieceCollector<'_>, reply: &Reply) {
        let is_own = reply.api == self.label;
        // Extra fields of a block are only sent back to the API that added them.
        let extra_if_own = |extra: &'_ Option<RawJson>| extra.clone().filter(|_| is_own);
        for block in &reply.blocks {
            let block = match block {
                Block::Text(block_text) if block_text.text.trim().is_empty() => continue,
                Block::Text(block_text) => text_block(&block_text.text)
                    .with_fields_of_object(extra_if_own(&block_text.extra).as_ref()),
                // Signatures and unknown blocks of another API are not valid here.
                Block::Thinking(_) | Block::Other(_) if !is_own => continue,
                Block::Thinking(thinking) => JsonObject::with_type_field("thinking")
                    .with_field("thinking", &thinking.text)
                    .with_field("signature", thinking.signature.as_deref().unwrap_or_default())
                    .with_fields_of_object(thinking.extra.as_ref()),
                Block::Other(raw) => {
                    target.add_raw_piece(MessageRole::Assistant, raw);
                    continue;
                }
                Block::ToolCall(call) => JsonObject::with_type_field("tool_use")
                    .with_field(
                        "id",
                        &target.register_tool_call(
                            call,
                            &call.id,
                            ToolCallIds::assign_valid_call_id,
                        ),
                    )
                    .with_field("name", &call_ids::to_valid_tool_name(&call.name, NAME_MAX))
                    .with_field("input", &tool_arguments_as_object(&call.input))
                    .with_fields_of_object(extra_if_own(&call.extra).as_ref()),
            };
            target.add_piece(MessageRole::Assistant, &block);
        }
    }
}

/// Returns a content block of type `text`.
pub(super) fn text_block(text: &str) -> JsonObject {
    JsonObject::with_type_field("text").with_field("text", text)
}

/// Encodes a part of a user message or of a tool result.
fn encode_message_part(part: &Part, images: &EncodedImages) -> JsonObject {
    let image = match part {
        Part::Text(text) => return text_block(text),
        Part::Image(image) => image,
    };
    let Some(data) = images.image_base64(image) else {
        return text_block(&image_placeholder_text(image));
    };
    let source = JsonObject::with_type_field("base64")
        .with_field("media_type", &image.media_type)
        .with_field("data", data);
    JsonObject::with_type_field("image").with_field("source", &source)
}

/// Adds `cache_control` to a block, which makes the provider cache the request up to the end of
/// this block.
pub(super) fn with_cache_control(block: JsonObject) -> RawJson {
    RawJson::from_serialize(
        &block.with_field("cache_control", &JsonObject::with_type_field("ephemeral")),
    )
}

/// A message in the format of the Messages API: consecutive blocks with the same role.
#[derive(Serialize)]
pub(super) struct ApiMessage {
    role: MessageRole,
    content: Vec<RawJson>,
}

/// Returns all messages of the conversation. The last user messages are marked for the provider's
/// prompt cache.
pub(super) fn build_api_messages(parts: &EncodedRequestParts<'_, MessageRole>) -> Vec<ApiMessage> {
    let last = parts.messages.iter().rev();
    let last = last.filter_map(|entry| entry.pieces.last());
    let user_pieces = last.filter(|piece| piece.kind == MessageRole::User);
    let marks: Vec<&EncodedPiece<MessageRole>> = user_pieces.take(CACHE_MARKS_MAX).collect();
    let mut turns: Vec<ApiMessage> = Vec::new();
    for piece in parts.conversation_pieces() {
        let content = match marks.iter().any(|mark| std::ptr::eq(*mark, piece)) {
            true => {
                with_cache_control(JsonObject::default().with_fields_of_object(Some(&piece.json)))
            }
            false => piece.json.clone(),
        };
        match turns.last_mut().filter(|turn| turn.role == piece.kind) {
            Some(turn) => turn.content.push(content),
            None => turns.push(ApiMessage { role: piece.kind, content: vec![content] }),
        }
    }
    turns
}
