//! Parses a request of any API into a provider-neutral form, with what scripts need. Unknown fields
//! are ignored; images and files are replaced by placeholders.
//!
//! Tool schemas are not checked, only one choice is ever returned, and responses are not stored: the
//! ID of a response contains its turn.

use std::sync::Arc;

use longhaul_core::id::CallId;
use longhaul_core::message::{Block, ImageRef, Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::{BlobRef, Hash, RawJson};
use serde_json::{Map, Value};

use crate::mock::api_error::ApiError;
use crate::mock::reply_ids::turn_from_response_id;
use crate::mock::response::ApiKind;

/// A request to the mock provider, parsed into a provider-neutral form.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    /// Name of the requested model.
    pub(crate) model: String,
    /// Number of messages of the assistant in the conversation.
    pub(crate) assistant_messages: u32,
    pub(crate) system: String,
    pub(crate) messages: Arc<Vec<Arc<Message>>>,
    /// The request as it was received.
    pub(crate) body: Value,
}

impl ParsedRequest {
    /// Returns whether the request asks for token counts at the end of a Chat Completions stream.
    pub(crate) fn wants_usage(&self) -> bool {
        self.body["stream_options"]["include_usage"] == true
    }
}

/// Checks the type of a value.
type TypeCheck = fn(&Value) -> bool;

/// Fields of any API that must have a type if they are present, with a description of the type.
const FIELD_TYPES: [(&str, TypeCheck, &str); 5] = [
    ("model", Value::is_string, "a string"),
    ("stream", Value::is_boolean, "true or false"),
    ("max_tokens", Value::is_u64, "a whole number, 0 or more"),
    ("messages", Value::is_array, "a list"),
    ("previous_response_id", Value::is_string, "a string"),
];

/// Parses a request body in the format of the given API.
pub(crate) fn parse_request(api: ApiKind, body: &[u8]) -> Result<ParsedRequest, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::new(400, "The request body is not UTF-8."))?;
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        let problem = match api {
            ApiKind::Messages => "The request body is not valid",
            ApiKind::Responses | ApiKind::Chat => {
                "We could not parse the JSON body of your request"
            }
        };
        ApiError::new(400, format!("{problem}: {error}"))
    })?;
    let body = Value::Object(fields);
    let missing = |field| ApiError::missing_field(api, field);
    for (field, is_valid, expected) in FIELD_TYPES {
        if !body[field].is_null() && !is_valid(&body[field]) {
            return Err(ApiError::invalid_field(field, format!("{field}: expected {expected}")));
        }
    }
    let model = body["model"].as_str().ok_or_else(|| missing("model"))?.to_owned();
    let mut conversation =
        Conversation { api, messages: Vec::new(), assistant_messages: 0, system: String::new() };
    let (field, prompt) = match api {
        ApiKind::Responses => {
            if let Some(id) = body["previous_response_id"].as_str() {
                conversation.assistant_messages =
                    turn_from_response_id(id).ok_or_else(|| ApiError::unknown_response_id(id))?;
            }
            let continues = !body["prompt"].is_null() || conversation.assistant_messages > 0;
            if body["input"].is_null() && !continues {
                return Err(missing("input"));
            }
            ("input", "instructions")
        }
        ApiKind::Messages | ApiKind::Chat => {
            let max_tokens = body["max_tokens"].as_u64();
            if api == ApiKind::Messages && max_tokens.ok_or_else(|| missing("max_tokens"))? == 0 {
                let message = "max_tokens: must be greater than or equal to 1";
                return Err(ApiError::invalid_field("max_tokens", message));
            }
            body["messages"].as_array().ok_or_else(|| missing("messages"))?;
            ("messages", "system")
        }
    };
    // The prompt of the Chat Completions API is one of the messages.
    if api != ApiKind::Chat {
        let parts = content_parts(&body[prompt], prompt);
        let parts = parts.map_err(|reason| ApiError::invalid_field(prompt, reason))?;
        conversation.system.push_str(&joined_text(parts));
    }
    let result = conversation.add_all(&body[field]);
    result.map_err(|reason| ApiError::invalid_field(field, reason))?;
    Ok(ParsedRequest {
        model,
        assistant_messages: conversation.assistant_messages,
        system: conversation.system,
        messages: Arc::new(conversation.messages.into_iter().map(Arc::new).collect()),
        body,
    })
}

/// Builder for the conversation of a request, to which messages and items are added in order.
struct Conversation {
    api: ApiKind,
    messages: Vec<Message>,
    assistant_messages: u32,
    /// Text of the system messages.
    system: String,
}

impl Conversation {
    /// Adds all messages, or the input of the Responses API: a text or a list of items.
    fn add_all(&mut self, conversation: &Value) -> Result<(), String> {
        let Value::Array(items) = conversation else {
            let content = content_parts(conversation, "input")?;
            if !content.is_empty() {
                self.add_user_message(content);
            }
            return Ok(());
        };
        if items.is_empty() && self.api == ApiKind::Messages {
            return Err("messages: at least one message is required".to_owned());
        }
        if items.is_empty() && self.api == ApiKind::Chat {
            let message = "Invalid 'messages': empty array. Expected at least one message.";
            return Err(message.to_owned());
        }
        items.iter().enumerate().try_for_each(|(index, item)| match self.api {
            ApiKind::Messages => self.add_message(item, &format!("messages.{index}")),
            ApiKind::Chat => self.add_message(item, &format!("messages[{index}]")),
            ApiKind::Responses => self.add_item(item, &format!("input[{index}]")),
        })
    }

    /// Adds an item of the Responses API.
    fn add_item(&mut self, item: &Value, path: &str) -> Result<(), String> {
        match item["type"].as_str().unwrap_or("message") {
            "message" => return self.add_message(item, path),
            // A result without a readable output is accepted as empty.
            kind if kind.ends_with("_output") => {
                self.add_tool_result(content_parts(&item["output"], path).unwrap_or_default());
            }
            "function_call" | "custom_tool_call" => {
                self.add_assistant_blocks([tool_call_block(&item["name"], &item["arguments"])]);
            }
            kind if kind.ends_with("_call") || ["reasoning", "item_reference"].contains(&kind) => {
                self.add_assistant_blocks([]);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a message of any API.
    fn add_message(&mut self, message: &Value, path: &str) -> Result<(), String> {
        let content = content_parts(&message["content"], &format!("{path}.content"))?;
        match (self.api, message["role"].as_str().unwrap_or_default()) {
            // Newer models accept system messages between the others.
            (ApiKind::Messages, "system") => {}
            (ApiKind::Responses | ApiKind::Chat, "system" | "developer") => {
                self.system.push_str(&joined_text(content));
            }
            (_, "user") => self.add_user_parts(content)?,
            (ApiKind::Chat, "tool" | "function") => self.add_tool_result(content),
            (_, "assistant") => {
                let calls = &message["tool_calls"];
                if !calls.is_null() && !calls.is_array() {
                    return Err(format!("{path}.tool_calls: expected a list"));
                }
                let calls = calls.as_array().into_iter().flatten();
                let calls = calls.map(|call| &call["function"]);
                let calls = calls.map(|call| tool_call_block(&call["name"], &call["arguments"]));
                self.add_assistant_blocks(content.iter().filter_map(to_block).chain(calls));
            }
            (api, _) => {
                let roles = match api {
                    ApiKind::Messages => "`user` or `assistant`",
                    ApiKind::Responses => "`user`, `assistant`, `system` or `developer`",
                    ApiKind::Chat => "`system`, `developer`, `user`, `assistant` or `tool`",
                };
                return Err(format!("{path}.role: must be {roles}"));
            }
        }
        Ok(())
    }

    /// Adds the parts of a user message. In the Messages API, tool results are among them.
    fn add_user_parts(&mut self, content: &[Value]) -> Result<(), String> {
        let (results, others): (Vec<&Value>, Vec<&Value>) =
            content.iter().partition(|part| part["type"] == "tool_result");
        for result in &results {
            self.add_tool_result(content_parts(&result["content"], "tool_result.content")?);
        }
        if results.is_empty() || !others.is_empty() {
            self.add_user_message(others);
        }
        Ok(())
    }

    fn add_user_message<'a>(&mut self, content: impl IntoIterator<Item = &'a Value>) {
        self.messages.push(Message::User(message_parts(content)));
    }

    /// Adds a message of the assistant. Consecutive items of the Responses API are one message.
    fn add_assistant_blocks(&mut self, blocks: impl IntoIterator<Item = Block>) {
        if self.api == ApiKind::Responses
            && let Some(Message::Assistant(last)) = self.messages.last_mut()
        {
            Arc::make_mut(last).blocks.extend(blocks);
            return;
        }
        self.assistant_messages = self.assistant_messages.saturating_add(1);
        let blocks = blocks.into_iter().collect();
        self.messages.push(Message::Assistant(Arc::new(Reply { api: String::new(), blocks })));
    }

    /// Adds a tool result. Consecutive results become one message.
    fn add_tool_result(&mut self, content: &[Value]) {
        let result = ToolResult {
            call: CallId { turn: self.assistant_messages, index: 0 },
            id: String::new(),
            content: message_parts(content),
            is_error: false,
        };
        if let Some(Message::Results(results)) = self.messages.last_mut() {
            results.push(result);
        } else {
            self.messages.push(Message::Results(vec![result]));
        }
    }
}

/// Returns the parts of the value of a `content` field: a list, or a text, which is its own only
/// part. A missing value has no parts. The error message names the given path of the field.
fn content_parts<'a>(content: &'a Value, field_path: &str) -> Result<&'a [Value], String> {
    match content {
        Value::Null => Ok(&[]),
        Value::String(_) => Ok(std::slice::from_ref(content)),
        Value::Array(parts) if parts.iter().all(Value::is_object) => Ok(parts),
        Value::Array(_) => Err(format!("{field_path}: expected a list of objects")),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(format!("{field_path}: expected a string or a list of parts"))
        }
    }
}

fn part_text(part: &Value) -> Option<&str> {
    part.as_str().or_else(|| part["text"].as_str())
}

fn joined_text(content: &[Value]) -> String {
    content.iter().filter_map(part_text).collect()
}

/// Converts content to the parts of a user message or a tool result. Scripts have no use for parts
/// of other types than text and images.
fn message_parts<'a>(content: impl IntoIterator<Item = &'a Value>) -> Vec<Part> {
    let to_part = |part: &Value| match (part_text(part), part["type"].as_str()) {
        (Some(text), _) => Some(Part::Text(text.into())),
        (None, Some("image" | "image_url" | "input_image")) => Some(Part::Image(ImageRef {
            media_type: String::new(),
            blob: BlobRef { hash: Hash::from_bytes([0; 32]), size: 0 },
        })),
        (None, _) => None,
    };
    content.into_iter().filter_map(to_part).collect()
}

/// Converts a part to a block of an assistant message.
fn to_block(part: &Value) -> Option<Block> {
    match part_text(part) {
        Some(text) => Some(Block::from_text(text)),
        None => Some(tool_call_block(&part["name"], part.get("input")?)),
    }
}

/// Returns a block for a tool call of an assistant message, whose arguments are JSON or a string
/// that contains JSON. The ID of the call is empty, because scripts of the mock model can use only
/// the size of the block.
fn tool_call_block(tool_name: &Value, arguments: &Value) -> Block {
    let text = arguments.as_str().and_then(|text| RawJson::parse(text).ok());
    Block::ToolCall(ToolCall {
        id: String::new(),
        name: tool_name.as_str().unwrap_or_default().to_owned(),
        input: text.unwrap_or_else(|| RawJson::from_serialize(arguments)),
        extra: None,
    })
}
