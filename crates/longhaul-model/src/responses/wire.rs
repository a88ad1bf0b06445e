//! The JSON of a Responses stream, as far as it is read.
//!
//! Never: refuses a field, an event or a word that it does not know.

use longhaul_core::message::StopReason;
use longhaul_core::raw::RawJson;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::arguments::{count, text, word};
use crate::counts::UsagePaths;

/// The Responses API.
#[derive(Debug)]
pub(super) struct Responses {
    /// What is asked for beside the reply, as a list.
    pub(super) include: Option<RawJson>,
    /// Whose items a reply over this wire is made of.
    pub(super) dialect: String,
}

/// Where tokens are counted.
pub(super) const USAGE: UsagePaths = UsagePaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/input_tokens_details/cached_tokens"],
    cache_write: "/input_tokens_details/cache_write_tokens",
    reasoning: "/output_tokens_details/reasoning_tokens",
    is_cache_input: true,
};

/// The longest name of a tool that is sent.
pub(super) const NAME_MAX: usize = 128;

/// The wire's name.
pub(super) const WIRE: &str = "responses";

/// One event. What its parts hold is read when it is known what it is.
#[derive(Debug, Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(rename = "type", default, deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(default, deserialize_with = "count")]
    pub(super) output_index: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) content_index: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) summary_index: Option<u64>,
    #[serde(default, deserialize_with = "text")]
    pub(super) item_id: Option<String>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A response, whole or as it begins.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Letter<'a> {
    #[serde(rename = "type", default, deserialize_with = "text")]
    pub(super) kind: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub(super) status: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub(super) model: Option<String>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    incomplete_details: Option<&'a RawValue>,
}

impl<'a> Letter<'a> {
    /// The items; none: there is no list of them.
    pub(super) fn output(&self) -> Option<Vec<&'a RawValue>> {
        serde_json::from_str(self.output?.get()).ok()
    }

    /// Why it is not complete.
    pub(super) fn reason(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Details {
            #[serde(default, deserialize_with = "word")]
            reason: Option<String>,
        }
        let details = serde_json::from_str(self.incomplete_details?.get());
        details.ok().and_then(|Details { reason }| reason)
    }
}

/// What a piece of an item is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Piece {
    Text,
    Refusal,
    Arguments,
    Summary,
    Thought,
}

impl Piece {
    /// The piece that an event brings, and whether it brings the whole of it.
    pub(super) fn of(event: &str) -> Option<(Self, bool)> {
        let (stem, end) = event.strip_prefix("response.")?.rsplit_once('.')?;
        let whole = match end {
            "delta" => false,
            "done" => true,
            _ => return None,
        };
        let piece = match stem {
            "output_text" => Self::Text,
            "refusal" => Self::Refusal,
            "function_call_arguments" => Self::Arguments,
            "reasoning_summary_text" => Self::Summary,
            "reasoning_text" => Self::Thought,
            _ => return None,
        };
        Some((piece, whole))
    }

    /// Where the whole of it stands in an event.
    pub(super) const fn whole<'a>(self, frame: &Frame<'a>) -> Option<&'a RawValue> {
        match self {
            Self::Text | Self::Summary | Self::Thought => frame.text,
            Self::Refusal => frame.refusal,
            Self::Arguments => frame.arguments,
        }
    }
}

/// How a response ended, as the provider says it.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) status: String,
    pub(super) reason: Option<String>,
}

impl Ending {
    /// Why the model stopped.
    pub(super) fn stop(self, refuses: bool, has_calls: bool) -> StopReason {
        match (self.status.as_str(), self.reason.as_deref()) {
            ("completed", _) if refuses => StopReason::Refusal,
            ("completed", _) if has_calls => StopReason::ToolUse,
            ("completed", _) => StopReason::EndTurn,
            ("incomplete", Some("max_output_tokens" | "max_tokens")) => StopReason::MaxTokens,
            ("incomplete", Some("content_filter")) => StopReason::Refusal,
            ("incomplete", Some(other)) => StopReason::Other(other.to_owned()),
            (other, _) => StopReason::Other(other.to_owned()),
        }
    }
}
