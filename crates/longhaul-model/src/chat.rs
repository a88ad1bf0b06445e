//! Models behind the Chat Completions API of OpenAI and of compatible servers: Moonshot, Ollama,
//! vLLM, llama.cpp, OpenRouter and many others.
//!
//! Invariant: fields that a quirk excludes are never sent. There are never two user messages in a
//! row and no images in tool results, and the bytes of arguments and unknown fields are never
//! changed.

mod calls;
mod decode;
mod quirks;

use std::sync::Arc;

use longhaul_core::message::{Block, ImageRef, Part, Reply, ThinkingBlock, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use serde::Serialize;

use crate::adapter::{ModelAdapter, ProviderApi, RequestParts};
use crate::call_ids::{self, ToolCallIds};
use crate::chat::decode::{REASONING, REASONING_CONTENT, REASONING_FIELD, StreamDecoder, USAGE};
use crate::conversation::{MessageEncoder, PendingCall, Piece, Pieces, Role, is_non_empty_part};
use crate::http::HttpClient;
use crate::images::{EncodedImages, image_placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::tool_arguments_as_object;
use crate::settings::{AuthScheme, ModelSettings, OpenedModel, SettingsError};
use crate::token_counts::UsageJsonPaths;
use crate::tool_table::ToolTableRow;

pub use crate::chat::quirks::ServerQuirks;

/// Name of the Chat Completions API, part of the label that is stored with each reply.
const API_NAME: &str = "chat";

/// Maximum number of characters of a tool name in a request.
const NAME_MAX: usize = 64;

/// The Chat Completions API of one provider, with the quirks of the provider's server.
#[derive(Debug)]
struct ChatCompletionsApi {
    quirks: ServerQuirks,
    /// Label of this API and its provider, such as `chat:moonshot`, which is stored with each
    /// reply. The provider is included because servers add fields that only they accept back.
    label: String,
}

/// Creates a model that uses the Chat Completions API. The base URL includes the API version, as in
/// `https://api.moonshot.ai/v1`, and is used unchanged. `clock` is used to interpret times in
/// response headers.
pub fn new_model(
    http: HttpClient,
    settings: ModelSettings,
    quirks: ServerQuirks,
    clock: Arc<dyn Clock>,
) -> OpenedModel {
    let wire = ChatCompletionsApi { quirks, label: settings.api_label(API_NAME) };
    Ok(Arc::new(ModelAdapter::new(wire, http, settings, clock)?))
}

/// Returns an error if the user has set a request field that only the adapter may set. Sends no
/// request.
pub fn check_request_fields(settings: &ModelSettings) -> Result<(), SettingsError> {
    settings.reject_reserved(ChatCompletionsApi::RESERVED_FIELDS)
}

impl ProviderApi for ChatCompletionsApi {
    type Decoder = StreamDecoder;

    const USAGE: &'static UsageJsonPaths = &USAGE;

    const PATH: (&'static str, &'static str) = ("", "chat/completions");

    const AUTH_SCHEME: AuthScheme = AuthScheme::Bearer;

    const HEADERS: &'static [(&'static str, &'static str)] = &[];

    const RESERVED_FIELDS: &'static [&'static str] = &[
        "model",
        "max_tokens",
        "max_completion_tokens",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "functions",
        // Only the first choice is decoded.
        "n",
    ];

    const CONVERSATION_FIELD: &'static str = "messages";

    fn api_label(&self) -> &str {
        &self.label
    }

    fn encode_system_prompt(&self, prompt: &str) -> RawJson {
        let role = match self.quirks.developer_role {
            true => "developer",
            false => "system",
        };
        RawJson::from_serialize(&message_with_role(role, prompt))
    }

    fn encode_tools(&self, tools: &[ToolTableRow]) -> RawJson {
        let tools = tools.iter().map(|row| {
            let function = row.encode_tool(NAME_MAX, "parameters");
            JsonObject::with_type_field("function").with_field("function", &function)
        });
        RawJson::from_serialize(&tools.collect::<Vec<_>>())
    }

    fn request_head(&self, parts: &RequestParts<'_>) -> JsonObject {
        let limit = match self.quirks.max_completion_tokens {
            true => "max_completion_tokens",
            false => "max_tokens",
        };
        let options = JsonObject::default().with_field("include_usage", &true);
        let options = Some(&options).filter(|_| !self.quirks.no_stream_options);
        JsonObject::default()
            .with_field("model", parts.model)
            .with_field(limit, &parts.max_tokens)
            .with_field("stream", &true)
            .with_option("stream_options", options)
            .with_fields_of_object(parts.fields)
            .with_option("tools", parts.tools)
    }

    fn encode_conversation(&self, parts: &RequestParts<'_>) -> impl Serialize {
        let prompt = parts.prompt.cloned().into_iter();
        prompt.chain(build_chat_messages(parts)).collect::<Vec<_>>()
    }
}

/// Maximum length of a call ID from another provider. OpenAI rejects longer IDs.
const FOREIGN_ID_MAX: usize = 40;

/// Reasoning text sent for a reply without reasoning. Servers that require reasoning treat an empty
/// string as missing.
const EMPTY_REASONING: &str = " ";

/// Content of an empty tool result. Some servers reject a message without content.
const EMPTY_RESULT: &str = "[empty]";

/// Text that replaces an image in a tool result. The image follows in a user message, because only
/// user messages can contain images.
const IMAGE_BELOW: &str = "[image, see below]";

impl MessageEncoder for ChatCompletionsApi {
    fn encode_user_message(&self, out: &mut Pieces<'_>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| is_non_empty_part(part));
        let parts: Vec<RawJson> =
            parts.map(|part| self.encode_message_part(out.images, part)).collect();
        if !parts.is_empty() {
            out.add_piece(Role::User, &message_with_role("user", &user_message_content(parts)));
        }
    }

    fn encode_tool_result(&self, out: &mut Pieces<'_>, id: &str, result: &ToolResult) {
        let text = self.tool_result_text(result, out.images);
        let message = JsonObject::default().with_field("role", "tool");
        let message = message.with_field("tool_call_id", id).with_field("content", &text);
        out.add_piece(Role::Tool, &message);
    }

    fn encode_reply(&self, out: &mut Pieces<'_>, reply: &Reply) {
        let is_own = reply.api == self.label;
        let keeps_extras = is_own && !self.quirks.no_extras;
        let (mut content_text, mut reasoning) = (String::new(), None);
        let (mut extras, mut calls) = (Vec::new(), Vec::new());
        for block in &reply.blocks {
            match block {
                Block::Text(text) => content_text.push_str(&text.text),
                // Reasoning and extra fields of another provider are not valid here.
                Block::Thinking(_) | Block::Other(_) if !is_own => {}
                Block::Thinking(thinking) => {
                    reasoning = reasoning_field_name(thinking).map(|field| (field, &*thinking.text))
                }
                Block::Other(raw) => extras.extend(keeps_extras.then_some(raw)),
                Block::ToolCall(call) => {
                    let truncated_id: String = call.id.chars().take(FOREIGN_ID_MAX).collect();
                    let id = match is_own {
                        true => out.register_call(call, &call.id, ToolCallIds::keep_or_assign),
                        false => out.register_call(call, &truncated_id, ToolCallIds::assign_valid),
                    };
                    let extra = call.extra.as_ref().filter(|_| keeps_extras);
                    calls.push(Self::encode_tool_call(&id, call).with_fields_of_object(extra));
                }
            }
        }
        let is_text_empty = content_text.trim().is_empty();
        // Servers reject a message with neither content nor calls.
        if is_text_empty && calls.is_empty() {
            return;
        }
        let content = match is_text_empty {
            false => Some(&*content_text),
            true => self.quirks.empty_content.then_some(""),
        };
        let mut turn = message_with_role("assistant", &content);
        if self.quirks.send_reasoning && !calls.is_empty() {
            let (field, reasoning) = reasoning.unwrap_or((REASONING_CONTENT, EMPTY_REASONING));
            turn = turn.with_field(field, reasoning);
        }
        let turn =
            extras.into_iter().fold(turn, |turn, extra| turn.with_fields_of_object(Some(extra)));
        let turn = turn.with_option("tool_calls", (!calls.is_empty()).then_some(&calls));
        out.add_piece(Role::Assistant, &turn);
    }

    fn messages_after_results(
        &self,
        matched: &[(PendingCall, &ToolResult)],
        encoded_images: &EncodedImages,
    ) -> Vec<Vec<Part>> {
        let is_shown = |part: &&Part| match part {
            Part::Text(_) => false,
            Part::Image(image) => self.image_base64(encoded_images, image).is_some(),
        };
        let messages = matched.iter().map(|(pending, result)| {
            let label = format!("[from the result of the call {}]", pending.id);
            let images = result.content.iter().filter(is_shown).cloned();
            [Part::Text(label.into())].into_iter().chain(images).collect()
        });
        messages.filter(|messages: &Vec<Part>| messages.len() > 1).collect()
    }
}

impl ChatCompletionsApi {
    /// Returns an image in base64. `None` means that the image is replaced by text.
    fn image_base64<'a>(&self, images: &'a EncodedImages, image: &ImageRef) -> Option<&'a str> {
        images.image_base64(image).filter(|_| !self.quirks.text_only)
    }

    /// Encodes a part of a user message: a JSON string for text, or an object for an image.
    fn encode_message_part(&self, images: &EncodedImages, part: &Part) -> RawJson {
        match part {
            Part::Text(text) => RawJson::from_serialize(text),
            Part::Image(image) => match self.image_base64(images, image) {
                None => RawJson::from_serialize(&image_placeholder_text(image)),
                Some(data) => {
                    let url = format!("data:{};base64,{data}", image.media_type);
                    let url = JsonObject::default().with_field("url", &url);
                    RawJson::from_serialize(
                        &JsonObject::with_type_field("image_url").with_field("image_url", &url),
                    )
                }
            },
        }
    }

    fn encode_tool_call(call_id: &str, call: &ToolCall) -> JsonObject {
        let function = JsonObject::default()
            .with_field("name", &call_ids::to_valid_tool_name(&call.name, NAME_MAX))
            .with_field("arguments", tool_arguments_as_object(&call.input).as_str());
        JsonObject::default()
            .with_field("id", call_id)
            .with_field("type", "function")
            .with_field("function", &function)
    }

    /// Returns the text of a tool result. This API has no field for a failed call, so the text of a
    /// failed call starts with `error`.
    fn tool_result_text(&self, result: &ToolResult, images: &EncodedImages) -> String {
        let parts = result.content.iter().filter(|part| is_non_empty_part(part));
        let text: Vec<String> = parts
            .map(|part| match part {
                Part::Text(text) => text.to_string(),
                Part::Image(image) => match self.image_base64(images, image) {
                    Some(_) => IMAGE_BELOW.to_owned(),
                    None => image_placeholder_text(image),
                },
            })
            .collect();
        let text = match text.is_empty() {
            true => EMPTY_RESULT.to_owned(),
            false => text.join("\n"),
        };
        let start = text.trim_start().get(..5).unwrap_or_default();
        match result.is_error && !start.eq_ignore_ascii_case("error") {
            true => format!("error: {text}"),
            false => text,
        }
    }
}

fn message_with_role(role: &str, content: &(impl serde::Serialize + ?Sized)) -> JsonObject {
    JsonObject::default().with_field("role", role).with_field("content", content)
}

/// Returns all messages of the conversation, without the system prompt.
fn build_chat_messages(parts: &RequestParts<'_>) -> Vec<RawJson> {
    let pieces: Vec<&Piece> = parts.pieces().collect();
    let is_same_message =
        |one: &&Piece, next: &&Piece| one.role == Role::User && next.role == Role::User;
    let messages = pieces.chunk_by(is_same_message).map(|pieces| match pieces {
        [piece] => piece.json.clone(),
        user_pieces => {
            let parts = user_pieces.iter().flat_map(|piece| user_message_parts(&piece.json));
            RawJson::from_serialize(&message_with_role(
                "user",
                &user_message_content(parts.collect()),
            ))
        }
    });
    messages.collect()
}

/// Returns the parts of an encoded user message. Content that is a single string is one part.
fn user_message_parts(user_message: &RawJson) -> Vec<RawJson> {
    let content = JsonObject::parse(user_message.as_str())
        .and_then(|mut fields| fields.take_field("content"));
    let content = content.unwrap_or_else(RawJson::null);
    serde_json::from_str(content.as_str()).unwrap_or_else(|_| vec![content])
}

/// Returns the content for consecutive user messages, combined into one: a string if all parts are
/// text, because not all servers accept a list of parts, otherwise the list of parts.
fn user_message_content(mut parts: Vec<RawJson>) -> RawJson {
    let texts = parts.iter().map(|one| serde_json::from_str(one.as_str()).ok());
    if let Some(texts) = texts.collect::<Option<Vec<String>>>() {
        return RawJson::from_serialize(&texts.join("\n\n"));
    }
    for one in parts.iter_mut().filter(|one| one.as_str().starts_with('"')) {
        *one =
            RawJson::from_serialize(&JsonObject::with_type_field("text").with_field("text", one));
    }
    RawJson::from_serialize(&parts)
}

/// Returns the name of the message field in which reasoning is sent back. `None` means that the
/// server did not send the reasoning in such a field.
fn reasoning_field_name(thinking: &ThinkingBlock) -> Option<&'static str> {
    let Some(extra) = &thinking.extra else {
        return Some(REASONING_CONTENT);
    };
    let name = JsonObject::parse(extra.as_str())?.take_string_field(REASONING_FIELD)?;
    [REASONING, REASONING_CONTENT].into_iter().find(|field| *field == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::message::Message;

    use super::*;
    use crate::conversation::EncodedConversation;

    #[test]
    fn a_user_message_is_encoded_once() {
        let wire = ChatCompletionsApi { quirks: ServerQuirks::default(), label: "chat".to_owned() };
        let message = Arc::new(Message::user("hello"));
        let mut conversation = EncodedConversation::default();
        conversation.push(&wire, &message, &EncodedImages::default());
        let parts = RequestParts {
            model: "poem",
            max_tokens: 1,
            fields: None,
            prompt: None,
            tools: None,
            messages: &conversation.messages,
            placeholders: &[],
        };
        let (first, second) = (build_chat_messages(&parts), build_chat_messages(&parts));
        assert_eq!(first[0].as_str(), r#"{"role":"user","content":"hello"}"#);
        assert!(std::ptr::eq(first[0].as_str(), second[0].as_str()));
    }
}
