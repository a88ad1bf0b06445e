//! The conversation in a form that no provider owns.
//!
//! Never: a provider's JSON that we understand. What we don't understand is
//! kept as it came and goes back to the provider that sent it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::CallId;
use crate::raw::{BlobRef, RawJson};

/// One message of a conversation. Results have a kind of their own, so that a
/// call and its result can't be confused with talk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What a person, an event or the runtime says to the model.
    User(Vec<Part>),
    /// What the model said.
    Assistant(Arc<Reply>),
    /// The results of the calls of the reply before, in the model's order.
    Results(Vec<ToolResult>),
}

impl Message {
    /// A user message of one text.
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self::User(vec![Part::Text(text.into())])
    }

    /// A reply of one text that no provider sent.
    pub fn assistant(text: impl Into<Arc<str>>) -> Self {
        Self::Assistant(Arc::new(Reply::own(text)))
    }

    /// The bytes that a request spends on this message, about.
    pub fn estimated_bytes(&self) -> u64 {
        match self {
            Self::User(parts) => parts.iter().map(Part::estimated_bytes).sum(),
            Self::Assistant(reply) => reply.blocks.iter().map(Block::estimated_bytes).sum(),
            Self::Results(results) => results.iter().map(ToolResult::estimated_bytes).sum(),
        }
    }
}

/// A piece of what is said to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text(Arc<str>),
    /// A picture, kept elsewhere.
    Image(ImageRef),
}

/// What an image stands for in a size estimate: about 1,500 tokens.
const IMAGE_BYTES: u64 = 6_000;

impl Part {
    /// Its words, where it is no picture.
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

/// Where a picture is and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRef {
    /// Such as `image/png`.
    pub media_type: String,
    /// Its bytes, by hash.
    pub blob: BlobRef,
}

/// What the model said in one turn, whole and in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The wire it came over, such as `anthropic`: whose unknown blocks these are.
    pub api: String,
    /// The pieces, in order.
    pub blocks: Vec<Block>,
}

impl Reply {
    /// A reply of one text that no provider sent.
    pub fn own(text: impl Into<Arc<str>>) -> Self {
        Self { api: "longhaul".to_owned(), blocks: vec![Block::text(text)] }
    }

    /// The calls in the model's order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            Block::Text(_) | Block::Thinking(_) | Block::Other(_) => None,
        })
    }

    /// All its text, joined.
    pub fn text(&self) -> String {
        let words = self.blocks.iter().filter_map(|block| match block {
            Block::Text(words) => Some(&*words.text),
            Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
        });
        words.collect::<Vec<_>>().join("")
    }
}

/// A piece of what a model said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Words for the reader.
    Text(TextBlock),
    /// Thoughts, with the signature that makes them valid when sent back.
    Thinking(ThinkingBlock),
    /// A tool to be used.
    ToolCall(ToolCall),
    /// A block we don't know, as it came.
    Other(RawJson),
}

impl Block {
    /// A block of plain words.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(TextBlock { text: text.into(), extra: None })
    }

    fn estimated_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Text(words) => words.text.len() + json_len(words.extra.as_ref()),
            Self::Thinking(thought) => {
                let signature = thought.signature.as_ref().map_or(0, |text| text.len());
                thought.text.len() + signature + json_len(thought.extra.as_ref())
            }
            Self::ToolCall(call) => {
                call.name.len() + call.input.as_str().len() + json_len(call.extra.as_ref())
            }
            Self::Other(raw) => raw.as_str().len(),
        };
        bytes as u64
    }
}

fn json_len(extra: Option<&RawJson>) -> usize {
    extra.map_or(0, |raw| raw.as_str().len())
}

/// Text of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextBlock {
    /// The text.
    pub text: Arc<str>,
    /// Fields of the provider's block that we don't know, as one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<RawJson>,
}

/// A model's reasoning as far as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThinkingBlock {
    /// The thought, maybe empty when the provider hides it.
    pub text: Arc<str>,
    /// The provider's seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Arc<str>>,
    /// Fields of the provider's block that we don't know, as one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<RawJson>,
}

/// A tool that the model wants used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id: may be empty, may repeat.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The name on the wire.
    pub name: String,
    /// The arguments, byte for byte.
    pub input: RawJson,
    /// Fields of the provider's block that we don't know, as one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<RawJson>,
}

/// What came of one call: exactly one for each call of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call by our count.
    pub call: CallId,
    /// The call by the provider's id, as it stands in the reply.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What the model is shown.
    pub content: Vec<Part>,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolResult {
    fn estimated_bytes(&self) -> u64 {
        self.content.iter().map(Part::estimated_bytes).sum()
    }
}

/// Why a model stopped speaking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it wanted.
    EndTurn,
    /// It wants tools used.
    ToolUse,
    /// The token limit cut it off; its calls are never run.
    MaxTokens,
    /// The provider paused a long turn and wants it sent back as it is.
    PauseTurn,
    /// It declined.
    Refusal,
    /// A reason we don't know, as the provider spelled it.
    Other(String),
}

impl StopReason {
    /// The same, with the provider's own words changed so.
    #[must_use]
    pub fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Other(words) => Self::Other(change(words)),
            Self::EndTurn | Self::ToolUse | Self::MaxTokens | Self::PauseTurn | Self::Refusal => {
                self
            }
        }
    }
}
