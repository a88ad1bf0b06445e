//! A conversation in the words of the Messages API.
//!
//! Never: two messages of the same side in a row, or a change to the bytes of arguments, of
//! sealed thoughts, or of a block that is not understood.

use longhaul_core::message::{Block, Part, Reply, ToolResult};
use longhaul_core::raw::RawJson;
use serde::Serialize;

use crate::adapter::RequestParts;
use crate::anthropic::wire::{MessagesApi, NAME_MAX};
use crate::call_ids::{self, CallIds};
use crate::conversation::{EncodeTarget, MessageEncoder, Piece};
use crate::images::{EncodedImages, placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::object_arguments;
use crate::tool_results::{NO_RESULT, has_content};

/// So many of the last messages from our side are marked: the newest, so that
/// the next turn finds it, and the one before, which this turn finds.
const CACHE_MARKS_MAX: usize = 2;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessageRole {
    User,
    Assistant,
}

impl MessageEncoder for MessagesApi {
    type Kind = MessageRole;

    fn encode_user(&self, page: &mut EncodeTarget<'_, MessageRole>, parts: &[Part]) {
        for part in parts.iter().filter(|part| has_content(part)) {
            page.add(MessageRole::User, &encode_part(part, page.images));
        }
    }

    fn encode_result(
        &self,
        page: &mut EncodeTarget<'_, MessageRole>,
        id: &str,
        result: &ToolResult,
    ) {
        let parts = result.content.iter().filter(|part| has_content(part));
        let parts: Vec<JsonObject> = parts.map(|part| encode_part(part, page.images)).collect();
        let block = JsonObject::of_type("tool_result")
            .with("tool_use_id", id)
            .with_some("content", (!parts.is_empty()).then_some(&parts))
            .with_some("is_error", result.is_error.then_some(&true));
        page.add(MessageRole::User, &block);
    }

    fn encode_missing_result(&self, page: &mut EncodeTarget<'_, MessageRole>, id: &str) {
        let block = JsonObject::of_type("tool_result")
            .with("tool_use_id", id)
            .with("content", &[text_block(NO_RESULT)])
            .with("is_error", &true);
        page.add(MessageRole::User, &block);
    }

    fn encode_reply(&self, page: &mut EncodeTarget<'_, MessageRole>, reply: &Reply) {
        let is_own = reply.api == self.api;
        // What the provider added to a block goes back only to itself.
        let own = |extra: &'_ Option<RawJson>| extra.clone().filter(|_| is_own);
        for block in &reply.blocks {
            let block = match block {
                Block::Text(words) if words.text.trim().is_empty() => continue,
                Block::Text(words) => {
                    text_block(&words.text).with_fields(own(&words.extra).as_ref())
                }
                // Another provider's seal is broken here, and so is its grammar.
                Block::Thinking(_) | Block::Other(_) if !is_own => continue,
                Block::Thinking(thought) => JsonObject::of_type("thinking")
                    .with("thinking", &thought.text)
                    .with("signature", thought.signature.as_deref().unwrap_or_default())
                    .with_fields(thought.extra.as_ref()),
                Block::Other(raw) => {
                    page.add_raw(MessageRole::Assistant, raw);
                    continue;
                }
                Block::ToolCall(call) => JsonObject::of_type("tool_use")
                    .with("id", &page.register_call(call, &call.id, CallIds::assign))
                    .with("name", &call_ids::tool_name(&call.name, NAME_MAX))
                    .with("input", &object_arguments(&call.input))
                    .with_fields(own(&call.extra).as_ref()),
            };
            page.add(MessageRole::Assistant, &block);
        }
    }
}

/// A block of text.
pub(super) fn text_block(words: &str) -> JsonObject {
    JsonObject::of_type("text").with("text", words)
}

/// A part of what is said to the model.
fn encode_part(part: &Part, album: &EncodedImages) -> JsonObject {
    let image = match part {
        Part::Text(words) => return text_block(words),
        Part::Image(image) => image,
    };
    let Some(data) = album.base64(image) else {
        return text_block(&placeholder_text(image));
    };
    let source =
        JsonObject::of_type("base64").with("media_type", &image.media_type).with("data", data);
    JsonObject::of_type("image").with("source", &source)
}

/// What makes the provider keep everything up to the end of a block in its cache.
pub(super) fn with_cache_control(block: JsonObject) -> RawJson {
    RawJson::from_serialize(&block.with("cache_control", &JsonObject::of_type("ephemeral")))
}

/// What one side says in a row.
#[derive(Serialize)]
pub(super) struct ApiMessage {
    role: MessageRole,
    content: Vec<RawJson>,
}

/// All turns, of which the last ones are marked.
pub(super) fn api_messages(parts: &RequestParts<'_, MessageRole>) -> Vec<ApiMessage> {
    let last = parts.messages.iter().rev();
    let last = last.filter_map(|entry| entry.pieces.last());
    let ours = last.filter(|piece| piece.kind == MessageRole::User);
    let marks: Vec<&Piece<MessageRole>> = ours.take(CACHE_MARKS_MAX).collect();
    let mut turns: Vec<ApiMessage> = Vec::new();
    for piece in parts.pieces() {
        let content = match marks.iter().any(|mark| std::ptr::eq(*mark, piece)) {
            true => with_cache_control(JsonObject::default().with_fields(Some(&piece.json))),
            false => piece.json.clone(),
        };
        match turns.last_mut().filter(|turn| turn.role == piece.kind) {
            Some(turn) => turn.content.push(content),
            None => turns.push(ApiMessage { role: piece.kind, content: vec![content] }),
        }
    }
    turns
}
