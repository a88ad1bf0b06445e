//! Parses a request of the OpenAI Chat Completions API. Only one choice is ever returned, whatever
//! `n` is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::request::{ContentValue, ConversationBuilder, ParsedRequest, tool_call_block};

#[derive(Deserialize)]
struct ChatRequest<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    messages: Option<Vec<ChatMessage<'a>>>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ChatMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<ChatToolCall<'a>>>,
}

#[derive(Deserialize)]
struct ChatToolCall<'a> {
    #[serde(borrow, default)]
    function: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
}

/// Parses the body of a Chat Completions request.
pub(super) fn parse_request(body: &str) -> Result<ParsedRequest<'_>, ApiError> {
    let request: ChatRequest<'_> = serde_json::from_str(body).map_err(|error| {
        let message = format!("We could not parse the JSON body of your request: {error}");
        ApiError::new(400, message)
    })?;
    let missing = |field| ApiError::missing_field(ApiKind::Chat, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let messages = request.messages.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let message = "Invalid 'messages': empty array. Expected at least one message.";
        return Err(ApiError::invalid_field("messages", message));
    }
    let mut conversation = ConversationBuilder::default();
    let mut system = String::new();
    for (index, message) in messages.iter().enumerate() {
        let system_text = add_chat_message(&mut conversation, message, index);
        system
            .push_str(&system_text.map_err(|reason| ApiError::invalid_field("messages", reason))?);
    }
    let options = request.stream_options;
    Ok(ParsedRequest {
        model,
        stream: request.stream.unwrap_or_default(),
        wants_usage: options.and_then(|options| options.include_usage) == Some(true),
        assistant_messages: conversation.assistant_messages,
        system,
        tools: request.tools.map_or("", RawValue::get),
        messages: conversation.into_messages(),
        ..ParsedRequest::default()
    })
}

/// Adds a message of the request to the conversation. Returns the text of a system message, or an
/// empty string for any other message.
fn add_chat_message(
    conversation: &mut ConversationBuilder,
    message: &ChatMessage<'_>,
    index: usize,
) -> Result<String, String> {
    let path = format!("messages[{index}]");
    let content =
        ContentValue::parse_content_field(message.content, format_args!("{path}.content"))?;
    match &*message.role {
        "system" | "developer" => return Ok(content.into_joined_text()),
        "user" => conversation.add_user_message(content.into_parts()),
        "tool" | "function" => conversation.add_tool_result(content.into_parts()),
        "assistant" => {
            let mut blocks = content.into_blocks();
            let calls = message.tool_calls.iter().flatten();
            let calls = calls.filter_map(|call| call.function.as_ref());
            blocks.extend(calls.map(|function| {
                let arguments = function.arguments.as_deref().unwrap_or_default();
                tool_call_block(function.name.as_deref(), arguments)
            }));
            conversation.add_assistant_message(blocks);
        }
        _ => {
            return Err(format!(
                "{path}.role: must be `system`, `developer`, `user`, `assistant` or `tool`"
            ));
        }
    }
    Ok(String::new())
}
