//! Reads a request of Anthropic Messages.
//!
//! Never: checks what only the provider could know, such as a tool's schema.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::dialect::Dialect;
use crate::mock::heard::{Heard, Inside, Talk};
use crate::mock::refusal::Refusal;

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
pub(super) fn hear(text: &str) -> Result<Heard<'_>, Refusal> {
    let request: Request<'_> = serde_json::from_str(text)
        .map_err(|bad| Refusal::new(400, format!("The request body is not valid: {bad}")))?;
    let missing = |field| Refusal::missing(Dialect::Messages, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let max_tokens = request.max_tokens.ok_or_else(|| missing("max_tokens"))?;
    if max_tokens == 0 {
        let message = "max_tokens: must be greater than or equal to 1";
        return Err(Refusal::wrong("max_tokens", message));
    }
    let messages = request.messages.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let message = "messages: at least one message is required";
        return Err(Refusal::wrong("messages", message));
    }
    let mut talk = Talk::default();
    for (place, message) in messages.iter().enumerate() {
        say(&mut talk, message, place).map_err(|bad| Refusal::wrong("messages", bad))?;
    }
    let system = Inside::read(request.system, "system");
    let system = system.map_err(|bad| Refusal::wrong("system", bad))?;
    Ok(Heard {
        model,
        stream: request.stream.unwrap_or_default(),
        said: talk.said,
        system: system.words(),
        tools: request.tools.map_or("", RawValue::get),
        messages: talk.end(),
        ..Heard::default()
    })
}

fn say(talk: &mut Talk, message: &Message<'_>, place: usize) -> Result<(), String> {
    let inside = || {
        let place = format_args!("messages.{place}.content").to_string();
        Inside::read(message.content, place)
    };
    match &*message.role {
        "assistant" => talk.assistant(inside()?.blocks()),
        "user" => from_user(talk, inside()?)?,
        // Newer models take notes of the system's between the messages.
        "system" => {}
        _ => {
            return Err(format!(
                "messages.{place}.role: must be `user` or `assistant`"
            ));
        }
    }
    Ok(())
}

/// Results stand in a message of the user's, and words may stand beside them.
fn from_user(talk: &mut Talk, inside: Inside<'_>) -> Result<(), String> {
    let pieces = match inside {
        Inside::Text(_) => {
            talk.user(inside.parts());
            return Ok(());
        }
        Inside::Parts(pieces) => pieces,
    };
    let (results, others): (Vec<_>, Vec<_>) = pieces
        .into_iter()
        .partition(|piece| piece.kind == "tool_result");
    let only_results = !results.is_empty() && others.is_empty();
    for result in results {
        talk.result(Inside::read(result.content, "tool_result.content")?.parts());
    }
    if !only_results {
        talk.user(Inside::Parts(others).parts());
    }
    Ok(())
}
