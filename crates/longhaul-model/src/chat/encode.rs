//! Encodes a conversation for the Chat Completions API.
//!
//! Invariant: there are never two user messages in a row and no images in tool results, and the
//! bytes of arguments and unknown fields are never changed.

use longhaul_core::message::{Block, ImageRef, Part, Reply, ThinkingBlock, ToolCall, ToolResult};
use longhaul_core::raw::RawJson;

use crate::adapter::EncodedRequestParts;
use crate::call_ids::{self, ToolCallIds};
use crate::chat::wire::{
    ChatCompletionsApi, NAME_MAX, REASONING, REASONING_CONTENT, REASONING_FIELD,
};
use crate::conversation::{self, EncodedPiece, MessageEncoder};
use crate::images::{EncodedImages, image_placeholder_text};
use crate::json_object::JsonObject;
use crate::lenient_json::tool_arguments_as_object;
use crate::tool_results::{PendingToolCall, is_non_empty_part};

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

/// Kind of an encoded piece of the conversation. In this API each piece is a complete message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatMessageKind {
    /// User message. Consecutive user messages are combined into one when they are sent.
    User,
    /// Message of any role other than user.
    Other,
}

type PieceCollector<'a> = conversation::PieceCollector<'a, ChatMessageKind>;

impl MessageEncoder for ChatCompletionsApi {
    type Kind = ChatMessageKind;

    fn encode_user_message(&self, target: &mut PieceCollector<'_>, parts: &[Part]) {
        let parts = parts.iter().filter(|part| is_non_empty_part(part));
        let parts: Vec<RawJson> =
            parts.map(|part| self.encode_message_part(target.images, part)).collect();
        if !parts.is_empty() {
            target.add_piece(
                ChatMessageKind::User,
                &message_with_role("user", &user_message_content(parts)),
            );
        }
    }

    fn encode_tool_result(&self, target: &mut PieceCollector<'_>, id: &str, result: &ToolResult) {
        let text = self.tool_result_text(result, target.images);
        target.add_piece(ChatMessageKind::Other, &tool_result_message(id, &text));
    }

    fn encode_reply(&self, target: &mut PieceCollector<'_>, reply: &Reply) {
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
                        true => target.register_tool_call(
                            call,
                            &call.id,
                            ToolCallIds::keep_or_assign_call_id,
                        ),
                        false => target.register_tool_call(
                            call,
                            &truncated_id,
                            ToolCallIds::assign_valid_call_id,
                        ),
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
        let turn = turn.with_optional_field("tool_calls", (!calls.is_empty()).then_some(&calls));
        target.add_piece(ChatMessageKind::Other, &turn);
    }

    fn user_messages_after_results(
        &self,
        matched: &[(PendingToolCall, &ToolResult)],
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

pub(super) fn message_with_role(
    role: &str,
    content: &(impl serde::Serialize + ?Sized),
) -> JsonObject {
    JsonObject::default().with_field("role", role).with_field("content", content)
}

fn tool_result_message(call_id: &str, text: &str) -> JsonObject {
    JsonObject::default()
        .with_field("role", "tool")
        .with_field("tool_call_id", call_id)
        .with_field("content", text)
}

/// Returns all messages of the conversation, without the system prompt.
pub(super) fn build_chat_messages(
    parts: &EncodedRequestParts<'_, ChatMessageKind>,
) -> Vec<RawJson> {
    let pieces: Vec<&EncodedPiece<ChatMessageKind>> = parts.conversation_pieces().collect();
    let is_same_message = |one: &&EncodedPiece<ChatMessageKind>,
                           next: &&EncodedPiece<ChatMessageKind>| {
        one.kind == ChatMessageKind::User && next.kind == ChatMessageKind::User
    };
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
    use crate::chat::quirks::ServerQuirks;
    use crate::conversation::EncodedConversation;

    #[test]
    fn a_user_message_is_encoded_once() {
        let wire = ChatCompletionsApi::new("chat".to_owned(), ServerQuirks::default());
        let message = Arc::new(Message::user("hello"));
        let mut conversation = EncodedConversation::default();
        conversation.push(&wire, &message, &EncodedImages::default());
        let parts = EncodedRequestParts {
            model: "poem",
            max_tokens: 1,
            fields: None,
            prompt: None,
            tools: None,
            messages: &conversation.messages,
            placeholder_results: &[],
        };
        let (first, second) = (build_chat_messages(&parts), build_chat_messages(&parts));
        assert_eq!(first[0].as_str(), r#"{"role":"user","content":"hello"}"#);
        assert!(std::ptr::eq(first[0].as_str(), second[0].as_str()));
    }
}
