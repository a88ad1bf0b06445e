//! Parses a request of the Anthropic Messages API. Tool schemas are not checked.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::request::{ContentValue, ConversationBuilder, ParsedRequest};

#[derive(Deserialize)]
struct MessagesRequest<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    max_tokens: Option<u64>,
    #[serde(borrow, default)]
    messages: Option<Vec<RequestMessage<'a>>>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    stream: Option<bool>,
}

#[derive(Deserialize)]
struct RequestMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

pub(super) fn parse_request(body: &str) -> Result<ParsedRequest<'_>, ApiError> {
    let request: MessagesRequest<'_> = serde_json::from_str(body)
        .map_err(|error| ApiError::new(400, format!("The request body is not valid: {error}")))?;
    let missing = |field| ApiError::missing_field(ApiKind::Messages, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let max_tokens = request.max_tokens.ok_or_else(|| missing("max_tokens"))?;
    if max_tokens == 0 {
        let message = "max_tokens: must be greater than or equal to 1";
        return Err(ApiError::invalid_field("max_tokens", message));
    }
    let messages = request.messages.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let message = "messages: at least one message is required";
        return Err(ApiError::invalid_field("messages", message));
    }
    let mut conversation = ConversationBuilder::default();
    for (index, message) in messages.iter().enumerate() {
        add_request_message(&mut conversation, message, index)
            .map_err(|reason| ApiError::invalid_field("messages", reason))?;
    }
    let system = ContentValue::parse_content_field(request.system, "system");
    let system = system.map_err(|reason| ApiError::invalid_field("system", reason))?;
    Ok(ParsedRequest {
        model,
        stream: request.stream.unwrap_or_default(),
        assistant_messages: conversation.assistant_messages,
        system: system.into_joined_text(),
        tools: request.tools.map_or("", RawValue::get),
        messages: conversation.into_messages(),
        ..ParsedRequest::default()
    })
}

fn add_request_message(
    conversation: &mut ConversationBuilder,
    message: &RequestMessage<'_>,
    index: usize,
) -> Result<(), String> {
    let parse_content = || {
        let index = format_args!("messages.{index}.content").to_string();
        ContentValue::parse_content_field(message.content, index)
    };
    match &*message.role {
        "assistant" => conversation.add_assistant_message(parse_content()?.into_blocks()),
        "user" => add_user_message(conversation, parse_content()?)?,
        // Newer models accept system messages between the others.
        "system" => {}
        _ => {
            return Err(format!("messages.{index}.role: must be `user` or `assistant`"));
        }
    }
    Ok(())
}

/// Adds a user message to the conversation. The message may contain tool results and other parts.
fn add_user_message(
    conversation: &mut ConversationBuilder,
    content: ContentValue<'_>,
) -> Result<(), String> {
    let pieces = match content {
        ContentValue::Text(_) => {
            conversation.add_user_message(content.into_parts());
            return Ok(());
        }
        ContentValue::Parts(pieces) => pieces,
    };
    let (results, others): (Vec<_>, Vec<_>) =
        pieces.into_iter().partition(|piece| piece.kind == "tool_result");
    let only_results = !results.is_empty() && others.is_empty();
    for result in results {
        conversation.add_tool_result(
            ContentValue::parse_content_field(result.content, "tool_result.content")?.into_parts(),
        );
    }
    if !only_results {
        conversation.add_user_message(ContentValue::Parts(others).into_parts());
    }
    Ok(())
}
