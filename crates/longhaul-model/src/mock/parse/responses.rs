//! Reads a request of OpenAI Responses.
//!
//! Never: remembers a response. One that goes on from another says by that
//! one's id in which turn it is.

use std::borrow::Cow;

use longhaul_core::message::Block;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::mock_reply;
use crate::mock::request::{ContentValue, ConversationBuilder, ParsedRequest, call_block};

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    stream: Option<bool>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    previous_response_id: Option<String>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    /// A text for a function; tools of the provider's own have other things here.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

/// Reads a request.
pub(super) fn parse(text: &str) -> Result<ParsedRequest<'_>, ApiError> {
    let unreadable = |bad: serde_json::Error| {
        let message = format!("We could not parse the JSON body of your request: {bad}");
        ApiError::new(400, message)
    };
    let request: Request<'_> = serde_json::from_str(text).map_err(unreadable)?;
    let echo = serde_json::from_str(text).map_err(unreadable)?;
    let missing = |field| ApiError::missing(ApiKind::Responses, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let before = match request.previous_response_id.as_deref() {
        None => 0,
        Some(id) => {
            mock_reply::turn_of_response(id).ok_or_else(|| ApiError::unknown_response(id))?
        }
    };
    if request.input.is_none() && request.prompt.is_none() && before == 0 {
        return Err(missing("input"));
    }
    let mut reading = InputParser::default();
    let read = reading.add_input(request.input);
    read.map_err(|bad| ApiError::invalid("input", bad))?;
    let instructions = ContentValue::parse(request.instructions, "instructions");
    let instructions = instructions.map_err(|bad| ApiError::invalid("instructions", bad))?;
    let (talk, system) = reading.finish();
    Ok(ParsedRequest {
        model,
        stream: request.stream.unwrap_or_default(),
        assistant_messages: talk.assistant_messages.saturating_add(before),
        system: instructions.into_text() + &system,
        tools: request.tools.map_or("", RawValue::get),
        messages: talk.finish(),
        echo,
        ..ParsedRequest::default()
    })
}

/// Items as they are read. Those of the assistant's that follow each other are
/// one message of its own.
#[derive(Default)]
struct InputParser {
    conversation: ConversationBuilder,
    system: String,
    assistant_blocks: Option<Vec<Block>>,
}

impl InputParser {
    fn add_input(&mut self, input: Option<&RawValue>) -> Result<(), String> {
        let Some(input) = input else {
            return Ok(());
        };
        if !input.get().starts_with('[') {
            self.conversation.user(ContentValue::parse(Some(input), "input")?.into_parts());
            return Ok(());
        }
        let items: Vec<Item<'_>> =
            serde_json::from_str(input.get()).map_err(|bad| format!("input: {bad}"))?;
        let mut items = items.iter().enumerate();
        items.try_for_each(|(place, item)| self.add_item(item, place))
    }

    fn add_item(&mut self, item: &Item<'_>, place: usize) -> Result<(), String> {
        let role = item.role.as_deref().unwrap_or_default();
        match item.kind.as_deref().unwrap_or("message") {
            "message" => self.add_message(item, role, place),
            // A result without one is of no use to a script, and no fault.
            kind if kind.ends_with("_output") => {
                self.flush_assistant();
                let output =
                    ContentValue::parse(item.output, format_args!("input[{place}].output"));
                self.conversation.result(output.map(ContentValue::into_parts).unwrap_or_default());
                Ok(())
            }
            "function_call" | "custom_tool_call" => {
                let raw = item.arguments.map_or("", RawValue::get);
                let text: Result<String, _> = serde_json::from_str(raw);
                let made = call_block(item.name.as_deref(), text.as_deref().unwrap_or(raw));
                self.assistant_blocks.get_or_insert_default().push(made);
                Ok(())
            }
            kind if kind.ends_with("_call") || ["reasoning", "item_reference"].contains(&kind) => {
                self.assistant_blocks.get_or_insert_default();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_message(&mut self, item: &Item<'_>, role: &str, place: usize) -> Result<(), String> {
        let inside = ContentValue::parse(item.content, format_args!("input[{place}].content"))?;
        match role {
            "assistant" => {
                let said = self.assistant_blocks.get_or_insert_default();
                said.push(Block::text(inside.into_text()));
            }
            "user" => {
                self.flush_assistant();
                self.conversation.user(inside.into_parts());
            }
            "system" | "developer" => self.system.push_str(&inside.into_text()),
            _ => {
                return Err(format!(
                    "input[{place}].role: must be `user`, `assistant`, `system` or `developer`"
                ));
            }
        }
        Ok(())
    }

    /// The assistant has ended.
    fn flush_assistant(&mut self) {
        if let Some(blocks) = self.assistant_blocks.take() {
            self.conversation.assistant(blocks);
        }
    }

    fn finish(mut self) -> (ConversationBuilder, String) {
        self.flush_assistant();
        (self.conversation, self.system)
    }
}
