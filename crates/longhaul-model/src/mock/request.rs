//! A parsed request to the mock provider, in provider-neutral form, with what scripts need. Images
//! and files are replaced by placeholders.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use longhaul_core::id::CallId;
use longhaul_core::message::{Block, ImageRef, Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::{BlobRef, Hash, RawJson};
use serde::Deserialize;
use serde_json::value::RawValue;

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

/// Builder for the conversation of a request, to which messages are added in order.
#[derive(Debug, Default)]
pub(crate) struct ConversationBuilder {
    messages: Vec<Arc<Message>>,
    results: Vec<ToolResult>,
    pub(crate) assistant_messages: u32,
}

impl ConversationBuilder {
    pub(crate) fn add_user_message(&mut self, parts: Vec<Part>) {
        self.flush_tool_results();
        self.messages.push(Arc::new(Message::User(parts)));
    }

    pub(crate) fn add_assistant_message(&mut self, blocks: Vec<Block>) {
        self.flush_tool_results();
        self.assistant_messages = self.assistant_messages.saturating_add(1);
        let api = String::new();
        let reply = Arc::new(Reply { api, blocks });
        self.messages.push(Arc::new(Message::Assistant(reply)));
    }

    /// Adds a tool result to the conversation. Consecutive results become one message.
    pub(crate) fn add_tool_result(&mut self, content: Vec<Part>) {
        self.results.push(ToolResult {
            call: CallId { turn: self.assistant_messages, index: 0 },
            id: String::new(),
            content,
            is_error: false,
        });
    }

    fn flush_tool_results(&mut self) {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.messages.push(Arc::new(Message::Results(results)));
        }
    }

    pub(crate) fn into_messages(mut self) -> Arc<Vec<Arc<Message>>> {
        self.flush_tool_results();
        Arc::new(self.messages)
    }
}

/// Value of a `content` field: a text or a list of parts.
#[derive(Debug)]
pub(crate) enum ContentValue<'a> {
    Text(String),
    Parts(Vec<ContentPart<'a>>),
}

/// A part of the value of a `content` field, in the format of any API.
#[derive(Debug, Deserialize)]
pub(crate) struct ContentPart<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) content: Option<&'a RawValue>,
}

impl<'a> ContentValue<'a> {
    /// Parses the value of a `content` field. A missing value and `null` have no parts. The error
    /// message names the given path of the field in the request.
    pub(crate) fn parse_content_field(
        raw: Option<&'a RawValue>,
        field_path: impl Display,
    ) -> Result<Self, String> {
        let text = raw.map_or("null", RawValue::get).trim_start();
        let content = match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str(text).map(Self::Text),
            Some(b'[') => serde_json::from_str(text).map(Self::Parts),
            Some(b'n') => Ok(Self::Parts(Vec::new())),
            _ => return Err(format!("{field_path}: expected a string or a list of parts")),
        };
        content.map_err(|error| format!("{field_path}: {error}"))
    }

    /// Converts the value to the parts of a user message or a tool result.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        match self {
            Self::Text(text) => vec![Part::Text(text.into())],
            Self::Parts(pieces) => {
                pieces.into_iter().filter_map(ContentPart::into_message_part).collect()
            }
        }
    }

    /// Converts the value to the blocks of an assistant message.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) => vec![Block::from_text(text)],
            Self::Parts(pieces) => pieces.into_iter().filter_map(ContentPart::into_block).collect(),
        }
    }

    /// Returns the text of all parts, joined.
    pub(crate) fn into_joined_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(pieces) => {
                let texts = pieces.into_iter().filter_map(|piece| piece.text);
                texts.collect()
            }
        }
    }
}

impl ContentPart<'_> {
    /// Converts the content part to a part of a user message. `None` means that scripts have no use
    /// for a part of this type.
    pub(crate) fn into_message_part(self) -> Option<Part> {
        match (self.text, &*self.kind) {
            (Some(text), _) => Some(Part::Text(text.into())),
            (None, "image" | "image_url" | "input_image") => Some(Part::Image(ImageRef {
                media_type: String::new(),
                blob: BlobRef { hash: Hash::from_bytes([0; 32]), size: 0 },
            })),
            (None, _) => None,
        }
    }

    fn into_block(self) -> Option<Block> {
        match (self.text, self.input) {
            (Some(text), _) => Some(Block::from_text(text)),
            (None, Some(input)) => Some(tool_call_block(self.name.as_deref(), input.get())),
            (None, None) => None,
        }
    }
}

/// Returns a block for a tool call of an assistant message. The ID of the call is empty, because
/// scripts of the mock model can use only the size of the block.
pub(crate) fn tool_call_block(tool_name: Option<&str>, arguments: &str) -> Block {
    let input = RawJson::parse(arguments);
    Block::ToolCall(ToolCall {
        id: String::new(),
        name: tool_name.unwrap_or_default().to_owned(),
        input: input.unwrap_or_else(|_| RawJson::from_serialize(&arguments)),
        extra: None,
    })
}
