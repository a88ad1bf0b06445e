//! Parses a request of the OpenAI Responses API. Responses are not stored: the ID of a response
//! contains its turn.

use std::borrow::Cow;

use longhaul_core::message::Block;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::mock_reply;
use crate::mock::request::{ContentValue, ConversationBuilder, ParsedRequest, tool_call_block};

#[derive(Deserialize)]
struct ResponsesRequest<'a> {
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
struct InputItem<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    /// Arguments of a function call, which are a string. Items of the provider's own tools have
    /// other values in this field.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

/// Parses the body of a Responses request.
pub(super) fn parse_request(body: &str) -> Result<ParsedRequest<'_>, ApiError> {
    let invalid_json_error = |error: serde_json::Error| {
        let message = format!("We could not parse the JSON body of your request: {error}");
        ApiError::new(400, message)
    };
    let request: ResponsesRequest<'_> = serde_json::from_str(body).map_err(invalid_json_error)?;
    let echo = serde_json::from_str(body).map_err(invalid_json_error)?;
    let missing = |field| ApiError::missing_field(ApiKind::Responses, field);
    let model = request.model.ok_or_else(|| missing("model"))?;
    let previous_turns = match request.previous_response_id.as_deref() {
        None => 0,
        Some(id) => mock_reply::turn_from_response_id(id)
            .ok_or_else(|| ApiError::unknown_response_id(id))?,
    };
    if request.input.is_none() && request.prompt.is_none() && previous_turns == 0 {
        return Err(missing("input"));
    }
    let mut item_parser = InputItemParser::default();
    let result = item_parser.add_input_items(request.input);
    result.map_err(|reason| ApiError::invalid_field("input", reason))?;
    let instructions = ContentValue::parse_content_field(request.instructions, "instructions");
    let instructions =
        instructions.map_err(|reason| ApiError::invalid_field("instructions", reason))?;
    let (conversation, system) = item_parser.into_conversation_and_system_prompt();
    Ok(ParsedRequest {
        model,
        stream: request.stream.unwrap_or_default(),
        assistant_messages: conversation.assistant_messages.saturating_add(previous_turns),
        system: instructions.into_joined_text() + &system,
        tools: request.tools.map_or("", RawValue::get),
        messages: conversation.into_messages(),
        echo,
        ..ParsedRequest::default()
    })
}

/// Builds the conversation from the input items of a request. Consecutive assistant items become
/// one message.
#[derive(Default)]
struct InputItemParser {
    conversation: ConversationBuilder,
    system: String,
    assistant_blocks: Option<Vec<Block>>,
}

impl InputItemParser {
    fn add_input_items(&mut self, input: Option<&RawValue>) -> Result<(), String> {
        let Some(input) = input else {
            return Ok(());
        };
        if !input.get().starts_with('[') {
            self.conversation.add_user_message(
                ContentValue::parse_content_field(Some(input), "input")?.into_parts(),
            );
            return Ok(());
        }
        let items: Vec<InputItem<'_>> =
            serde_json::from_str(input.get()).map_err(|error| format!("input: {error}"))?;
        let mut items = items.iter().enumerate();
        items.try_for_each(|(index, item)| self.add_item(item, index))
    }

    fn add_item(&mut self, item: &InputItem<'_>, index: usize) -> Result<(), String> {
        let role = item.role.as_deref().unwrap_or_default();
        match item.kind.as_deref().unwrap_or("message") {
            "message" => self.add_message_item(item, role, index),
            // A result without a readable output is accepted as empty.
            kind if kind.ends_with("_output") => {
                self.flush_assistant_message();
                let output = ContentValue::parse_content_field(
                    item.output,
                    format_args!("input[{index}].output"),
                );
                self.conversation
                    .add_tool_result(output.map(ContentValue::into_parts).unwrap_or_default());
                Ok(())
            }
            "function_call" | "custom_tool_call" => {
                let raw = item.arguments.map_or("", RawValue::get);
                let text: Result<String, _> = serde_json::from_str(raw);
                let block = tool_call_block(item.name.as_deref(), text.as_deref().unwrap_or(raw));
                self.assistant_blocks.get_or_insert_default().push(block);
                Ok(())
            }
            kind if kind.ends_with("_call") || ["reasoning", "item_reference"].contains(&kind) => {
                self.assistant_blocks.get_or_insert_default();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_message_item(
        &mut self,
        item: &InputItem<'_>,
        role: &str,
        index: usize,
    ) -> Result<(), String> {
        let content = ContentValue::parse_content_field(
            item.content,
            format_args!("input[{index}].content"),
        )?;
        match role {
            "assistant" => {
                let blocks = self.assistant_blocks.get_or_insert_default();
                blocks.push(Block::from_text(content.into_joined_text()));
            }
            "user" => {
                self.flush_assistant_message();
                self.conversation.add_user_message(content.into_parts());
            }
            "system" | "developer" => self.system.push_str(&content.into_joined_text()),
            _ => {
                return Err(format!(
                    "input[{index}].role: must be `user`, `assistant`, `system` or `developer`"
                ));
            }
        }
        Ok(())
    }

    /// Ends the current assistant message and adds it to the conversation.
    fn flush_assistant_message(&mut self) {
        if let Some(blocks) = self.assistant_blocks.take() {
            self.conversation.add_assistant_message(blocks);
        }
    }

    fn into_conversation_and_system_prompt(mut self) -> (ConversationBuilder, String) {
        self.flush_assistant_message();
        (self.conversation, self.system)
    }
}
