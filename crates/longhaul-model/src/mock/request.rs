//! A request in the form that no provider owns, as far as a script needs it.
//!
//! Never: keeps a picture or a file. Only their place is counted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use longhaul_core::id::CallId;
use longhaul_core::message::{Block, ImageRef, Message, Part, Reply, ToolCall, ToolResult};
use longhaul_core::raw::{BlobRef, Hash, RawJson};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A request.
#[derive(Debug, Default)]
pub(crate) struct ParsedRequest<'a> {
    /// The model, as it was asked for.
    pub(crate) model: Cow<'a, str>,
    /// Whether the reply is wanted piece by piece.
    pub(crate) stream: bool,
    /// Whether a stream of Chat Completions ends with what was used.
    pub(crate) wants_usage: bool,
    /// So many messages of the assistant's are in it.
    pub(crate) assistant_messages: u32,
    pub(crate) system: String,
    /// The tools as they came.
    pub(crate) tools: &'a str,
    pub(crate) messages: Arc<Vec<Arc<Message>>>,
    /// What Responses says back.
    pub(crate) echo: BTreeMap<String, &'a RawValue>,
}

/// A conversation as it is read, message by message.
#[derive(Debug, Default)]
pub(crate) struct ConversationBuilder {
    messages: Vec<Arc<Message>>,
    results: Vec<ToolResult>,
    pub(crate) assistant_messages: u32,
}

impl ConversationBuilder {
    pub(crate) fn user(&mut self, parts: Vec<Part>) {
        self.flush_results();
        self.messages.push(Arc::new(Message::User(parts)));
    }

    pub(crate) fn assistant(&mut self, blocks: Vec<Block>) {
        self.flush_results();
        self.assistant_messages = self.assistant_messages.saturating_add(1);
        let dialect = String::new();
        let reply = Arc::new(Reply { api: dialect, blocks });
        self.messages.push(Arc::new(Message::Assistant(reply)));
    }

    /// A tool's result. Those that follow each other are one message.
    pub(crate) fn result(&mut self, content: Vec<Part>) {
        self.results.push(ToolResult {
            call: CallId { turn: self.assistant_messages, index: 0 },
            id: String::new(),
            content,
            is_error: false,
        });
    }

    fn flush_results(&mut self) {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.messages.push(Arc::new(Message::Results(results)));
        }
    }

    /// All messages.
    pub(crate) fn finish(mut self) -> Arc<Vec<Arc<Message>>> {
        self.flush_results();
        Arc::new(self.messages)
    }
}

/// What stands in a `content`: a text, or parts.
#[derive(Debug)]
pub(crate) enum ContentValue<'a> {
    Text(String),
    Parts(Vec<ContentPart<'a>>),
}

/// A part of a `content`, in any dialect.
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
    /// Reads a `content`; nothing and `null` are no parts. The error is for people.
    pub(crate) fn parse(raw: Option<&'a RawValue>, place: impl Display) -> Result<Self, String> {
        let text = raw.map_or("null", RawValue::get).trim_start();
        let read = match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str(text).map(Self::Text),
            Some(b'[') => serde_json::from_str(text).map(Self::Parts),
            Some(b'n') => Ok(Self::Parts(Vec::new())),
            _ => return Err(format!("{place}: a text or a list of parts is expected")),
        };
        read.map_err(|bad| format!("{place}: {bad}"))
    }

    /// What a person or a tool says with it.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        match self {
            Self::Text(text) => vec![Part::Text(text.into())],
            Self::Parts(pieces) => pieces.into_iter().filter_map(ContentPart::into_part).collect(),
        }
    }

    /// What an assistant said with it.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) => vec![Block::text(text)],
            Self::Parts(pieces) => pieces.into_iter().filter_map(ContentPart::into_block).collect(),
        }
    }

    /// Its words.
    pub(crate) fn into_text(self) -> String {
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
    /// A part of what is said to a model; none: nothing that a script could use.
    pub(crate) fn into_part(self) -> Option<Part> {
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
            (Some(text), _) => Some(Block::text(text)),
            (None, Some(input)) => Some(call_block(self.name.as_deref(), input.get())),
            (None, None) => None,
        }
    }
}

/// A call that an assistant made. Only its length is of interest.
pub(crate) fn call_block(name: Option<&str>, arguments: &str) -> Block {
    let input = RawJson::parse(arguments);
    Block::ToolCall(ToolCall {
        id: String::new(),
        name: name.unwrap_or_default().to_owned(),
        input: input.unwrap_or_else(|_| RawJson::from_serialize(&arguments)),
        extra: None,
    })
}
