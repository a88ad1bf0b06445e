//! Reads a request of OpenAI Chat Completions.
//!
//! Never: more than one choice. Whoever asks for several gets the first.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::dialect::Dialect;
use crate::mock::heard::{Heard, Inside, Talk, call};
use crate::mock::refusal::Refusal;

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
pub(super) fn hear(text: &str) -> Result<Heard<'_>, Refusal> {
    let request: Request<'_> = serde_json::from_str(text).map_err(|bad| {
        let message = format!("We could not parse the JSON body of your request: {bad}");
        Refusal::new(400, message)
    })?;
    let missing = |field| Refusal::missing(Dialect::Chat, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let messages = request.messages.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let message = "Invalid 'messages': empty array. Expected at least one message.";
        return Err(Refusal::wrong("messages", message));
    }
    let mut talk = Talk::default();
    let mut system = String::new();
    for (place, message) in messages.iter().enumerate() {
        let words = say(&mut talk, message, place);
        system.push_str(&words.map_err(|bad| Refusal::wrong("messages", bad))?);
    }
    let options = request.stream_options;
    Ok(Heard {
        model,
        stream: request.stream.unwrap_or_default(),
        wants_usage: options.and_then(|options| options.include_usage) == Some(true),
        said: talk.said,
        system,
        tools: request.tools.map_or("", RawValue::get),
        messages: talk.end(),
        ..Heard::default()
    })
}

/// Takes a message in; what the system says with it comes back.
fn say(talk: &mut Talk, message: &Message<'_>, place: usize) -> Result<String, String> {
    let place = format!("messages[{place}]");
    let inside = Inside::read(message.content, format_args!("{place}.content"))?;
    match &*message.role {
        "system" | "developer" => return Ok(inside.words()),
        "user" => talk.user(inside.parts()),
        "tool" | "function" => talk.result(inside.parts()),
        "assistant" => {
            let mut blocks = inside.blocks();
            let calls = message.tool_calls.iter().flatten();
            let calls = calls.filter_map(|call| call.function.as_ref());
            blocks.extend(calls.map(|function| {
                let arguments = function.arguments.as_deref().unwrap_or_default();
                call(function.name.as_deref(), arguments)
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
