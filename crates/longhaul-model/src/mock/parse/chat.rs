//! Reads a request of OpenAI Chat Completions.
//!
//! Never: more than one choice. Whoever asks for several gets the first.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::request::{ContentValue, ConversationBuilder, ParsedRequest, call_block};

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    messages: Option<Vec<Message<'a>>>,
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
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
}

/// Reads a request.
pub(super) fn parse(text: &str) -> Result<ParsedRequest<'_>, ApiError> {
    let request: Request<'_> = serde_json::from_str(text).map_err(|bad| {
        let message = format!("We could not parse the JSON body of your request: {bad}");
        ApiError::new(400, message)
    })?;
    let missing = |field| ApiError::missing(ApiKind::Chat, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let messages = request.messages.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let message = "Invalid 'messages': empty array. Expected at least one message.";
        return Err(ApiError::invalid("messages", message));
    }
    let mut talk = ConversationBuilder::default();
    let mut system = String::new();
    for (place, message) in messages.iter().enumerate() {
        let words = add_message(&mut talk, message, place);
        system.push_str(&words.map_err(|bad| ApiError::invalid("messages", bad))?);
    }
    let options = request.stream_options;
    Ok(ParsedRequest {
        model,
        stream: request.stream.unwrap_or_default(),
        wants_usage: options.and_then(|options| options.include_usage) == Some(true),
        assistant_messages: talk.assistant_messages,
        system,
        tools: request.tools.map_or("", RawValue::get),
        messages: talk.finish(),
        ..ParsedRequest::default()
    })
}

/// Takes a message in; what the system says with it comes back.
fn add_message(
    talk: &mut ConversationBuilder,
    message: &Message<'_>,
    place: usize,
) -> Result<String, String> {
    let place = format!("messages[{place}]");
    let inside = ContentValue::parse(message.content, format_args!("{place}.content"))?;
    match &*message.role {
        "system" | "developer" => return Ok(inside.into_text()),
        "user" => talk.user(inside.into_parts()),
        "tool" | "function" => talk.result(inside.into_parts()),
        "assistant" => {
            let mut blocks = inside.into_blocks();
            let calls = message.tool_calls.iter().flatten();
            let calls = calls.filter_map(|call| call.function.as_ref());
            blocks.extend(calls.map(|function| {
                let arguments = function.arguments.as_deref().unwrap_or_default();
                call_block(function.name.as_deref(), arguments)
            }));
            talk.assistant(blocks);
        }
        _ => {
            return Err(format!(
                "{place}.role: must be `system`, `developer`, `user`, `assistant` or `tool`"
            ));
        }
    }
    Ok(String::new())
}
