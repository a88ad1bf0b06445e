//! The JSON of a Messages stream, as far as it is read.
//!
//! Never: refuses a field, an event or a word that it does not know.

use longhaul_core::message::StopReason;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::arguments::{count, text, word};
use crate::counts::UsagePaths;

/// The Messages API.
#[derive(Debug)]
pub(super) struct Messages {
    /// Whose blocks a reply over this wire is made of.
    pub(super) dialect: String,
}

/// Where tokens are counted.
pub(super) const USAGE: UsagePaths = UsagePaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/cache_read_input_tokens"],
    cache_write: "/cache_creation_input_tokens",
    reasoning: "/output_tokens_details/thinking_tokens",
    is_cache_input: false,
};

/// The longest name of a tool that is sent.
pub(super) const NAME_MAX: usize = 128;

/// The wire's name.
pub(super) const WIRE: &str = "anthropic";

/// One event. What its parts hold is read when it is known what it is.
#[derive(Debug, Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(rename = "type", default, deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(default, deserialize_with = "count")]
    pub(super) index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A message, whole or as it begins.
#[derive(Debug, Deserialize)]
pub(super) struct Letter<'a> {
    #[serde(rename = "type", default, deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub(super) model: Option<String>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "word")]
    pub(super) stop_reason: Option<String>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// How a message ends.
#[derive(Debug, Deserialize)]
pub(super) struct Ending {
    #[serde(default, deserialize_with = "word")]
    pub(super) stop_reason: Option<String>,
}

/// The deltas that are understood.
const DELTAS: &[&str] = &[
    "text_delta",
    "thinking_delta",
    "signature_delta",
    "input_json_delta",
    "citations_delta",
];

/// What is added to a block.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) thinking: Option<String>,
    #[serde(default)]
    pub(super) signature: Option<String>,
    #[serde(default)]
    pub(super) partial_json: Option<String>,
    #[serde(borrow, default)]
    pub(super) citation: Option<&'a RawValue>,
}

impl<'a> Delta<'a> {
    /// Reads a delta. Of one that is not understood only the kind is known: its
    /// fields may hold anything.
    pub(super) fn read(raw: &'a str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Kind {
            #[serde(rename = "type", default, deserialize_with = "text")]
            kind: Option<String>,
        }
        let Kind { kind } = serde_json::from_str(raw)?;
        let kind = kind.unwrap_or_default();
        match DELTAS.contains(&kind.as_str()) {
            true => serde_json::from_str(raw),
            false => Ok(Self {
                kind,
                ..Self::default()
            }),
        }
    }
}

/// Why the model stopped. A window that is full cuts a reply off as a token
/// limit does, and a reply that met a stop sequence is as whole as another.
pub(super) fn stop(reason: Option<&str>, has_calls: bool) -> StopReason {
    match reason {
        Some("end_turn" | "stop_sequence") | None if has_calls => StopReason::ToolUse,
        Some("end_turn" | "stop_sequence") | None => StopReason::EndTurn,
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("pause_turn") => StopReason::PauseTurn,
        Some("refusal") => StopReason::Refusal,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}
