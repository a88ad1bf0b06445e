//! Conversation messages in a form that is independent of the provider.
//!
//! Blocks that Longhaul does not know are stored unchanged and only sent back to the
//! provider that they came from.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CallId;
use crate::raw::{BlobRef, RawJson};

/// One message of a conversation. Tool results have their own variant, so that a call and
/// its result can't be confused with text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Message of a person, an event or the runtime to the model.
    User(Vec<Part>),
    /// Reply of the model in one turn.
    Assistant(Arc<Reply>),
    /// Results of the tool calls in the preceding reply, in the order of the calls.
    Results(Vec<ToolResult>),
}

impl Message {
    /// Returns the texts of a message without images, thoughts and tool calls. Empty for results of
    /// tool calls.
    pub fn text(&self) -> String {
        match self {
            Self::User(parts) => parts.iter().filter_map(Part::text).collect::<Vec<_>>().join("\n"),
            Self::Assistant(reply) => reply.text(),
            Self::Results(_) => String::new(),
        }
    }

    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self::User(vec![Part::Text(text.into())])
    }

    /// Creates a message with a reply that consists of one text and does not come from a provider.
    pub fn assistant(text: impl Into<Arc<str>>) -> Self {
        Self::Assistant(Arc::new(Reply::from_text(text)))
    }

    /// Returns the approximate size of the message in a request, in bytes.
    pub fn estimated_bytes(&self) -> u64 {
        match self {
            Self::User(parts) => parts.iter().map(Part::estimated_bytes).sum(),
            Self::Assistant(reply) => reply.blocks.iter().map(Block::estimated_bytes).sum(),
            Self::Results(results) => results.iter().map(ToolResult::estimated_bytes).sum(),
        }
    }
}

/// Part of a message to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text that the model reads.
    Text(Arc<str>),
    /// Image for the model, stored as a blob.
    Image(ImageRef),
}

/// Size of an image that is assumed in estimates, in bytes. It equals about 1,500 tokens.
const IMAGE_BYTES: u64 = 6_000;

impl Part {
    /// Returns the text of the part. `None` for an image.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Image(_) => None,
        }
    }

    fn estimated_bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Image(_) => IMAGE_BYTES,
        }
    }
}

/// Reference to an image that is stored as a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRef {
    /// Media type of the image, such as `image/png`.
    pub media_type: String,
    /// Blob with the image data.
    pub blob: BlobRef,
}

/// Value of [`Reply::api`] in replies of a handler (a Rust function that is registered as an
/// agent).
pub const HANDLER_API: &str = "handler";

/// Complete reply of a model in one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Model API that the reply came from, such as `anthropic`. Unknown blocks are only sent back
    /// to this API.
    pub api: String,
    /// Content blocks of the reply, in order.
    pub blocks: Vec<Block>,
}

impl Reply {
    /// Creates a reply that consists of one text and does not come from a provider.
    pub fn from_text(reply_text: impl Into<Arc<str>>) -> Self {
        Self { api: "longhaul".to_owned(), blocks: vec![Block::from_text(reply_text)] }
    }

    /// Returns the tool calls of the reply, in the order in which the model made them.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            Block::Text(_) | Block::Thinking(_) | Block::Other(_) => None,
        })
    }

    /// Returns the concatenated text of all text blocks.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text(texts) => Some(&*texts.text),
            Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        texts.collect::<Vec<_>>().join("")
    }
}

/// Content block of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Text of the model's answer.
    Text(TextBlock),
    /// Reasoning of the model, with the signature that the provider requires when it is sent back.
    Thinking(ThinkingBlock),
    /// Tool call requested by the model.
    ToolCall(ToolCall),
    /// Block of an unknown type, stored unchanged.
    Other(RawJson),
}

impl Block {
    /// Creates a block that contains only this text.
    pub fn from_text(block_text: impl Into<Arc<str>>) -> Self {
        Self::Text(TextBlock { text: block_text.into(), extra: None })
    }

    fn estimated_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Text(block) => block.text.len() + optional_json_len(block.extra.as_ref()),
            Self::Thinking(thinking) => {
                let signature = thinking.signature.as_ref().map_or(0, |text| text.len());
                thinking.text.len() + signature + optional_json_len(thinking.extra.as_ref())
            }
            Self::ToolCall(call) => {
                call.name.len() + call.input.as_str().len() + optional_json_len(call.extra.as_ref())
            }
            Self::Other(raw) => raw.as_str().len(),
        };
        bytes as u64
    }
}

fn optional_json_len(extra: Option<&RawJson>) -> usize {
    extra.map_or(0, |raw| raw.as_str().len())
}

/// Text block in the reply of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextBlock {
    pub text: Arc<str>,
    /// Fields of the provider's text block that Longhaul does not know, as one JSON object. `None`
    /// if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<RawJson>,
}

/// Reasoning of the model, as far as the provider reveals it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkingBlock {
    /// Text of the reasoning. May be empty if the provider hides it.
    pub text: Arc<str>,
    /// Signature of the reasoning by the provider. `None` if the provider sent no signature.
    pub signature: Option<Arc<str>>,
    /// Fields of the provider's reasoning block that Longhaul does not know, as one JSON object.
    /// `None` if there are none.
    pub extra: Option<RawJson>,
}

/// Tool call requested by the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Id of the tool call, assigned by the provider. May be empty or repeated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Name of the called tool, as sent to the provider.
    pub name: String,
    /// Arguments of the tool call as JSON, byte for byte as the model wrote them.
    pub input: RawJson,
    /// Fields of the provider's tool call block that Longhaul does not know, as one JSON object.
    /// `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<RawJson>,
}

/// Result of one tool call. Every call of a reply has exactly one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Id of the tool call that the result belongs to.
    pub call: CallId,
    /// Id that the provider assigned to the tool call in the reply.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Content of the result that is shown to the model.
    pub content: Vec<Part>,
    /// Whether the tool call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolResult {
    fn estimated_bytes(&self) -> u64 {
        self.content.iter().map(Part::estimated_bytes).sum()
    }
}

/// Reason why a model stopped generating its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has completed its reply.
    EndTurn,
    /// The model requests tool calls.
    ToolUse,
    /// The reply reached the token limit. Its tool calls are never executed.
    MaxTokens,
    /// The provider paused a long turn and expects the reply to be sent back unchanged.
    PauseTurn,
    /// The model refused to answer.
    Refusal,
    /// Unknown stop reason, as reported by the provider.
    Other(String),
}

impl StopReason {
    /// Applies `change` to the text of a stop reason that Longhaul does not know. Known stop
    /// reasons are returned unchanged.
    #[must_use]
    pub fn map_unknown_stop_reason(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Other(text) => Self::Other(change(text)),
            Self::EndTurn | Self::ToolUse | Self::MaxTokens | Self::PauseTurn | Self::Refusal => {
                self
            }
        }
    }
}
