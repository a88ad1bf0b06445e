//! Reads a request of Anthropic Messages.
//!
//! Never: checks what only the provider could know, such as a tool's schema.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::request::{ContentValue, ConversationBuilder, ParsedRequest};

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    max_tokens: Option<u64>,
    #[serde(borrow, default)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    stream: Option<bool>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// Reads a request.
pub(super) fn parse(text: &str) -> Result<ParsedRequest<'_>, ApiError> {
    let request: Request<'_> = serde_json::from_str(text)
        .map_err(|bad| ApiError::new(400, format!("The request body is not valid: {bad}")))?;
    let missing = |field| ApiError::missing(ApiKind::Messages, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let max_tokens = request.max_tokens.ok_or_else(|| missing("max_tokens"))?;
    if max_tokens == 0 {
        let message = "max_tokens: must be greater than or equal to 1";
        return Err(ApiError::invalid("max_tokens", message));
    }
    let messages = request.messages.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let message = "messages: at least one message is required";
        return Err(ApiError::invalid("messages", message));
    }
    let mut talk = ConversationBuilder::default();
    for (place, message) in messages.iter().enumerate() {
        add_message(&mut talk, message, place).map_err(|bad| ApiError::invalid("messages", bad))?;
    }
    let system = ContentValue::parse(request.system, "system");
    let system = system.map_err(|bad| ApiError::invalid("system", bad))?;
    Ok(ParsedRequest {
        model,
        stream: request.stream.unwrap_or_default(),
        assistant_messages: talk.assistant_messages,
        system: system.into_text(),
        tools: request.tools.map_or("", RawValue::get),
        messages: talk.finish(),
        ..ParsedRequest::default()
    })
}

fn add_message(
    talk: &mut ConversationBuilder,
    message: &Message<'_>,
    place: usize,
) -> Result<(), String> {
    let inside = || {
        let place = format_args!("messages.{place}.content").to_string();
        ContentValue::parse(message.content, place)
    };
    match &*message.role {
        "assistant" => talk.assistant(inside()?.into_blocks()),
        "user" => add_user_message(talk, inside()?)?,
        // Newer models take notes of the system's between the messages.
        "system" => {}
        _ => {
            return Err(format!("messages.{place}.role: must be `user` or `assistant`"));
        }
    }
    Ok(())
}

/// Results stand in a message of the user's, and words may stand beside them.
fn add_user_message(
    talk: &mut ConversationBuilder,
    inside: ContentValue<'_>,
) -> Result<(), String> {
    let pieces = match inside {
        ContentValue::Text(_) => {
            talk.user(inside.into_parts());
            return Ok(());
        }
        ContentValue::Parts(pieces) => pieces,
    };
    let (results, others): (Vec<_>, Vec<_>) =
        pieces.into_iter().partition(|piece| piece.kind == "tool_result");
    let only_results = !results.is_empty() && others.is_empty();
    for result in results {
        talk.result(ContentValue::parse(result.content, "tool_result.content")?.into_parts());
    }
    if !only_results {
        talk.user(ContentValue::Parts(others).into_parts());
    }
    Ok(())
}
