//! Models behind the Messages API of Anthropic and of compatible servers.
//!
//! Invariant: consecutive messages of a request have different roles, and the bytes of arguments,
//! signed thinking blocks and unknown blocks are never changed.

mod block;
mod decode;

use std::sync::Arc;

use longhaul_core::message::{Block, Part, Reply, ToolResult};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{ModelAdapter, ProviderApi, RequestParts};
use crate::anthropic::decode::{StreamDecoder, USAGE};
use crate::call_ids::{self, ToolCallIds};
use crate::conversation::{MessageEncoder, Piece, Pieces, Role, is_non_empty_part};
use crate::http::HttpClient;
use crate::images::{EncodedImages, image_placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::tool_arguments_as_object;
use crate::settings::{AuthScheme, ModelSettings, OpenedModel, SettingsError};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::ToolTableRow;

/// Maximum number of characters of a tool name in a request.
const NAME_MAX: usize = 128;

/// Name of the Messages API, part of the label that is stored with each reply.
const API_NAME: &str = "anthropic";

/// The Messages API of one provider.
#[derive(Debug)]
struct MessagesApi {
    /// Label of this API and its provider, such as `anthropic`, which is stored with each reply.
    label: String,
}

/// Creates a model that uses the Messages API. `clock` is used to interpret times in response
/// headers.
pub fn new_model(http: HttpClient, settings: ModelSettings, clock: Arc<dyn Clock>) -> OpenedModel {
    let api = settings.api_label(API_NAME);
    let wire = MessagesApi { label: api };
    Ok(Arc::new(ModelAdapter::new(wire, http, settings, clock)?))
}

/// Returns an error if the user has set a request field that only the adapter may set. Sends no
/// request.
pub fn check_request_fields(settings: &ModelSettings) -> Result<(), SettingsError> {
    settings.reject_reserved(MessagesApi::RESERVED_FIELDS)
}

impl ProviderApi for MessagesApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsageJsonPaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("v1", "messages");

    const AUTH_SCHEME: AuthScheme = AuthScheme::ApiKeyHeader;

    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", "2023-06-01")];

    const RESERVED_FIELDS: &'static [&'static str] =
        &["model", "max_tokens", "messages", "stream", "system", "tools"];

    const CONVERSATION_FIELD: &'static str = "messages";

    fn api_label(&self) -> &str {
        &self.label
    }

    fn encode_system_prompt(&self, prompt: &str) -> RawJson {
        RawJson::from_serialize(&[with_cache_control(text_block(prompt))])
    }

    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson {
        let last = tools.len().saturating_sub(1);
        let tools = tools.iter().enumerate().map(|(index, row)| {
            let tool = row.encode_tool(NAME_MAX, "input_schema");
            match index == last {
                true => with_cache_control(tool),
                false => RawJson::from_serialize(&tool),
            }
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn request_head(&self, parts: &RequestParts<'_>) -> JsonObject {
        JsonObject::default()
            .with_field("model", parts.model)
            .with_field("max_tokens", &parts.max_tokens)
            .with_field("stream", &true)
            .with_fields_of_object(parts.fields)
            .with_option("system", parts.prompt)
            .with_option("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &RequestParts<'_>) -> impl Serialize {
        build_api_messages(parts)
    }
}

/// Maximum number of user messages that are marked for the provider's prompt cache: the newest
/// message, which the next turn will find in the cache, and the user message before it, which this
/// turn finds in the cache.
const CACHE_MARKS_MAX: usize = 2;

impl MessageEncoder for MessagesApi {
    fn encode_user_message(&self, out: &mut Pieces<'_>, parts: &[Part]) {
        for part in parts.iter().filter(|part| is_non_empty_part(part)) {
            out.add_piece(Role::User, &encode_message_part(part, out.images));
        }
    }

    fn encode_tool_result(&self, out: &mut Pieces<'_>, id: &str, result: &ToolResult) {
        let parts = result.content.iter().filter(|part| is_non_empty_part(part));
        let parts: Vec<JsonObject> =
            parts.map(|part| encode_message_part(part, out.images)).collect();
        let block = JsonObject::with_type_field("tool_result")
            .with_field("tool_use_id", id)
            .with_option("content", (!parts.is_empty()).then_some(&parts))
            .with_option("is_error", result.is_error.then_some(&true));
        out.add_piece(Role::User, &block);
    }

    fn encode_reply(&self, out: &mut Pieces<'_>, reply: &Reply) {
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
                    out.add_piece(Role::Assistant, raw);
                    continue;
                }
                Block::ToolCall(call) => JsonObject::with_type_field("tool_use")
                    .with_field("id", &out.register_call(call, &call.id, ToolCallIds::assign_valid))
                    .with_field("name", &call_ids::to_valid_tool_name(&call.name, NAME_MAX))
                    .with_field("input", &tool_arguments_as_object(&call.input))
                    .with_fields_of_object(extra_if_own(&call.extra).as_ref()),
            };
            out.add_piece(Role::Assistant, &block);
        }
    }
}

/// Returns a content block of type `text`.
fn text_block(text: &str) -> JsonObject {
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
fn with_cache_control(block: JsonObject) -> RawJson {
    RawJson::from_serialize(
        &block.with_field("cache_control", &JsonObject::with_type_field("ephemeral")),
    )
}

/// A message in the format of the Messages API: consecutive blocks with the same role.
#[derive(Serialize)]
struct ApiMessage {
    role: Role,
    content: Vec<RawJson>,
}

/// Returns all messages of the conversation. The last user messages are marked for the provider's
/// prompt cache.
fn build_api_messages(parts: &RequestParts<'_>) -> Vec<ApiMessage> {
    let last = parts.messages.iter().rev();
    let last = last.filter_map(|entry| entry.pieces.last());
    let user_pieces = last.filter(|piece| piece.role == Role::User);
    let marks: Vec<&Piece> = user_pieces.take(CACHE_MARKS_MAX).collect();
    let mut turns: Vec<ApiMessage> = Vec::new();
    for piece in parts.pieces() {
        let content = match marks.iter().any(|mark| std::ptr::eq(*mark, piece)) {
            true => {
                with_cache_control(JsonObject::default().with_fields_of_object(Some(&piece.json)))
            }
            false => piece.json.clone(),
        };
        match turns.last_mut().filter(|turn| turn.role == piece.role) {
            Some(turn) => turn.content.push(content),
            None => turns.push(ApiMessage { role: piece.role, content: vec![content] }),
        }
    }
    turns
}
