//! Parses a request of any API into a provider-neutral form, with what scripts need. Unknown fields
//! are ignored; images and files are replaced by placeholders.
//!
//! Tool schemas are not checked, only one choice is ever returned, and responses are not stored: the
//! ID of a response contains its turn.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::id::CallId;
use longhaul_core::message::{Block, ImageRef, Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::{BlobRef, Hash, RawJson};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mock::api_error::ApiError;
use crate::mock::reply_ids::turn_from_response_id;
use crate::mock::response::ApiKind;

/// A request to the mock provider, parsed into a provider-neutral form.
#[derive(Debug, Default)]
pub(crate) struct ParsedRequest<'a> {
    /// Name of the requested model.
    pub(crate) model: Cow<'a, str>,
    /// Whether the request asks for a streamed reply.
    pub(crate) stream: bool,
    /// Whether the request asks for token counts at the end of a Chat Completions stream.
    pub(crate) wants_usage: bool,
    pub(crate) assistant_messages: u32,
    pub(crate) system: String,
    /// JSON of the tool list in the request, unchanged.
    pub(crate) tools: &'a str,
    pub(crate) messages: Arc<Vec<Arc<Message>>>,
    /// Request fields that the Responses API repeats in its response.
    pub(crate) echo: BTreeMap<String, &'a RawValue>,
}

type Content<'a> = Vec<ContentPart<'a>>;

/// Body of a request in the format of any API.
#[derive(Deserialize)]
struct RequestBody<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    max_tokens: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// System prompt of the Messages API.
    system: Option<&'a RawValue>,
    /// System prompt of the Responses API.
    instructions: Option<&'a RawValue>,
    /// Conversation of the Messages and the Chat Completions API.
    messages: Option<Vec<Item<'a>>>,
    /// Conversation of the Responses API: a text, or a list of items.
    input: Option<&'a RawValue>,
    prompt: Option<&'a RawValue>,
    previous_response_id: Option<String>,
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A message, or an item of the Responses API.
#[derive(Deserialize)]
struct Item<'a> {
    /// Type of an item. A message has none.
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    content: Option<&'a RawValue>,
    /// Tool calls of a message of the Chat Completions API.
    tool_calls: Option<Vec<ChatToolCall<'a>>>,
    name: Option<Cow<'a, str>>,
    /// Arguments of a function call, which are a string. Items of the provider's own tools have
    /// other values in this field.
    arguments: Option<&'a RawValue>,
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChatToolCall<'a> {
    #[serde(borrow)]
    function: Option<ChatFunction<'a>>,
}

#[derive(Deserialize)]
struct ChatFunction<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    arguments: Option<&'a RawValue>,
}

/// A part of the value of a `content` field.
#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    text: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    input: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
}

/// Parses a request body in the format of the given API.
pub(crate) fn parse_request(api: ApiKind, body: &[u8]) -> Result<ParsedRequest<'_>, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::new(400, "The request body is not UTF-8."))?;
    let invalid_json = |error: serde_json::Error| {
        let problem = match api {
            ApiKind::Messages => "The request body is not valid",
            ApiKind::Responses | ApiKind::Chat => {
                "We could not parse the JSON body of your request"
            }
        };
        ApiError::new(400, format!("{problem}: {error}"))
    };
    let body: RequestBody<'_> = serde_json::from_str(text).map_err(invalid_json)?;
    let missing = |field| ApiError::missing_field(api, field);
    let model = body.model.ok_or_else(|| missing("model"))?;
    let mut conversation = Conversation::new(api);
    let mut echo = BTreeMap::new();
    let prompt_field = match api {
        ApiKind::Responses => {
            echo = serde_json::from_str(text).map_err(invalid_json)?;
            if let Some(id) = body.previous_response_id.as_deref() {
                conversation.assistant_messages =
                    turn_from_response_id(id).ok_or_else(|| ApiError::unknown_response_id(id))?;
            }
            let continues = body.prompt.is_some() || conversation.assistant_messages > 0;
            if body.input.is_none() && !continues {
                return Err(missing("input"));
            }
            let result = conversation.add_input(body.input);
            result.map_err(|reason| ApiError::invalid_field("input", reason))?;
            ("instructions", body.instructions)
        }
        ApiKind::Messages | ApiKind::Chat => {
            if api == ApiKind::Messages
                && body.max_tokens.ok_or_else(|| missing("max_tokens"))? == 0
            {
                let message = "max_tokens: must be greater than or equal to 1";
                return Err(ApiError::invalid_field("max_tokens", message));
            }
            let messages = body.messages.ok_or_else(|| missing("messages"))?;
            let result = conversation.add_messages(messages);
            result.map_err(|reason| ApiError::invalid_field("messages", reason))?;
            ("system", body.system.filter(|_| api == ApiKind::Messages))
        }
    };
    let (name, prompt) = prompt_field;
    let system = parse_content(prompt, name);
    let system = system.map_err(|reason| ApiError::invalid_field(name, reason))?;
    conversation.flush();
    Ok(ParsedRequest {
        model,
        stream: body.stream.unwrap_or_default(),
        wants_usage: body.stream_options.and_then(|options| options.include_usage) == Some(true),
        assistant_messages: conversation.assistant_messages,
        system: joined_text(system) + &conversation.system,
        tools: body.tools.map_or("", RawValue::get),
        messages: Arc::new(conversation.messages),
        echo,
    })
}

/// Builder for the conversation of a request, to which messages and items are added in order.
struct Conversation {
    api: ApiKind,
    messages: Vec<Arc<Message>>,
    pending: PendingMessage,
    assistant_messages: u32,
    /// Text of the system messages.
    system: String,
}

/// A message that consists of several items of a request and may be continued by the next one.
#[derive(Default)]
enum PendingMessage {
    #[default]
    None,
    Assistant(Vec<Block>),
    Results(Vec<ToolResult>),
}

impl Conversation {
    const fn new(api: ApiKind) -> Self {
        Self {
            api,
            messages: Vec::new(),
            pending: PendingMessage::None,
            assistant_messages: 0,
            system: String::new(),
        }
    }

    fn add_messages(&mut self, messages: Vec<Item<'_>>) -> Result<(), String> {
        if messages.is_empty() {
            return Err(match self.api {
                ApiKind::Messages => "messages: at least one message is required",
                ApiKind::Responses | ApiKind::Chat => {
                    "Invalid 'messages': empty array. Expected at least one message."
                }
            }
            .to_owned());
        }
        let mut messages = messages.into_iter().enumerate();
        messages.try_for_each(|(index, message)| self.add_message(message, index))
    }

    fn add_input(&mut self, input: Option<&RawValue>) -> Result<(), String> {
        let Some(list) = input.filter(|input| input.get().starts_with('[')) else {
            let content = parse_content(input, "input")?;
            if input.is_some() {
                self.add_user_message(content);
            }
            return Ok(());
        };
        let items: Vec<Item<'_>> =
            serde_json::from_str(list.get()).map_err(|error| format!("input: {error}"))?;
        let mut items = items.into_iter().enumerate();
        items.try_for_each(|(index, item)| self.add_item(item, index))
    }

    /// Adds an item of the Responses API. Consecutive assistant items become one message.
    fn add_item(&mut self, item: Item<'_>, index: usize) -> Result<(), String> {
        match item.kind.as_deref().unwrap_or("message") {
            "message" => return self.add_message(item, index),
            // A result without a readable output is accepted as empty.
            kind if kind.ends_with("_output") => {
                self.add_tool_result(parse_content(item.output, "output").unwrap_or_default());
            }
            "function_call" | "custom_tool_call" => {
                let block = tool_call_block(item.name.as_deref(), item.arguments);
                self.add_assistant_blocks([block]);
            }
            kind if kind.ends_with("_call") || ["reasoning", "item_reference"].contains(&kind) => {
                self.add_assistant_blocks([]);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a message of any API.
    fn add_message(&mut self, message: Item<'_>, index: usize) -> Result<(), String> {
        let path = match self.api {
            ApiKind::Messages => format!("messages.{index}"),
            ApiKind::Responses => format!("input[{index}]"),
            ApiKind::Chat => format!("messages[{index}]"),
        };
        let content = parse_content(message.content, &format!("{path}.content"))?;
        match (self.api, message.role.as_deref().unwrap_or_default()) {
            // Newer models accept system messages between the others.
            (ApiKind::Messages, "system") => {}
            (ApiKind::Responses | ApiKind::Chat, "system" | "developer") => {
                self.system.push_str(&joined_text(content));
            }
            (_, "user") => self.add_user_parts(content)?,
            (ApiKind::Chat, "tool" | "function") => self.add_tool_result(content),
            (_, "assistant") => {
                if self.api != ApiKind::Responses {
                    self.flush();
                }
                let calls = message.tool_calls.into_iter().flatten();
                let calls = calls.filter_map(|call| call.function);
                let calls = calls.map(|call| tool_call_block(call.name.as_deref(), call.arguments));
                let blocks = content.into_iter().filter_map(ContentPart::into_block);
                self.add_assistant_blocks(blocks.chain(calls));
                if self.api != ApiKind::Responses {
                    self.flush();
                }
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
    fn add_user_parts(&mut self, content: Content<'_>) -> Result<(), String> {
        let (results, others): (Vec<_>, Vec<_>) =
            content.into_iter().partition(|part| part.kind == "tool_result");
        let only_results = !results.is_empty() && others.is_empty();
        for result in results {
            self.add_tool_result(parse_content(result.content, "tool_result.content")?);
        }
        if !only_results {
            self.add_user_message(others);
        }
        Ok(())
    }

    fn add_user_message(&mut self, content: Content<'_>) {
        self.flush();
        self.messages.push(Arc::new(Message::User(message_parts(content))));
    }

    fn add_assistant_blocks(&mut self, blocks: impl IntoIterator<Item = Block>) {
        if !matches!(self.pending, PendingMessage::Assistant(_)) {
            self.flush();
            self.pending = PendingMessage::Assistant(Vec::new());
        }
        if let PendingMessage::Assistant(pending) = &mut self.pending {
            pending.extend(blocks);
        }
    }

    /// Adds a tool result. Consecutive results become one message.
    fn add_tool_result(&mut self, content: Content<'_>) {
        if !matches!(self.pending, PendingMessage::Results(_)) {
            self.flush();
            self.pending = PendingMessage::Results(Vec::new());
        }
        let call = CallId { turn: self.assistant_messages, index: 0 };
        if let PendingMessage::Results(pending) = &mut self.pending {
            let content = message_parts(content);
            pending.push(ToolResult { call, id: String::new(), content, is_error: false });
        }
    }

    /// Adds the pending message to the conversation.
    fn flush(&mut self) {
        let message = match std::mem::take(&mut self.pending) {
            PendingMessage::None => return,
            PendingMessage::Assistant(blocks) => {
                self.assistant_messages = self.assistant_messages.saturating_add(1);
                Message::Assistant(Arc::new(Reply { api: String::new(), blocks }))
            }
            PendingMessage::Results(results) => Message::Results(results),
        };
        self.messages.push(Arc::new(message));
    }
}

/// Parses the value of a `content` field: a text or a list of parts. A missing value has no parts.
/// The error message names the given path of the field in the request.
fn parse_content<'a>(raw: Option<&'a RawValue>, field_path: &str) -> Result<Content<'a>, String> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let content = match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw.get()).map(|text: Cow<'a, str>| {
            vec![ContentPart {
                kind: Cow::Borrowed("text"),
                text: Some(text),
                name: None,
                input: None,
                content: None,
            }]
        }),
        Some(b'[') => serde_json::from_str(raw.get()),
        _ => return Err(format!("{field_path}: expected a string or a list of parts")),
    };
    content.map_err(|error| format!("{field_path}: {error}"))
}

/// Converts content to the parts of a user message or a tool result. Scripts have no use for parts
/// of other types than text and images.
fn message_parts(content: Content<'_>) -> Vec<Part> {
    let part = |part: ContentPart<'_>| match (part.text, &*part.kind) {
        (Some(text), _) => Some(Part::Text(text.into())),
        (None, "image" | "image_url" | "input_image") => Some(Part::Image(ImageRef {
            media_type: String::new(),
            blob: BlobRef { hash: Hash::from_bytes([0; 32]), size: 0 },
        })),
        (None, _) => None,
    };
    content.into_iter().filter_map(part).collect()
}

fn joined_text(content: Content<'_>) -> String {
    content.into_iter().filter_map(|part| part.text).collect()
}

impl ContentPart<'_> {
    /// Converts the part to a block of an assistant message.
    fn into_block(self) -> Option<Block> {
        match (self.text, self.input) {
            (Some(text), _) => Some(Block::from_text(text)),
            (None, Some(input)) => Some(tool_call_block(self.name.as_deref(), Some(input))),
            (None, None) => None,
        }
    }
}

/// Returns a block for a tool call of an assistant message, whose arguments are JSON or a string
/// that contains JSON. The ID of the call is empty, because scripts of the mock model can use only
/// the size of the block.
fn tool_call_block(tool_name: Option<&str>, arguments: Option<&RawValue>) -> Block {
    let raw = arguments.map_or("", RawValue::get);
    let text: Result<String, _> = serde_json::from_str(raw);
    let text = text.as_deref().unwrap_or(raw);
    Block::ToolCall(ToolCall {
        id: String::new(),
        name: tool_name.unwrap_or_default().to_owned(),
        input: RawJson::parse(text).unwrap_or_else(|_| RawJson::from_serialize(&text)),
        extra: None,
    })
}
