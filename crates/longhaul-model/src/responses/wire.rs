//! The JSON of a Responses stream, as far as it is read.
//!
//! Never: refuses a field, an event or a word that it does not know.

use longhaul_core::message::StopReason;
use longhaul_core::raw::RawJson;

use crate::token_counts::UsagePaths;

/// The Responses API.
#[derive(Debug)]
pub(super) struct ResponsesApi {
    /// What is asked for beside the reply, as a list.
    pub(super) include: Option<RawJson>,
    /// Whose items a reply over this wire is made of.
    pub(super) api: String,
}

/// Where tokens are counted.
pub(super) const USAGE: UsagePaths = UsagePaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/input_tokens_details/cached_tokens"],
    cache_write: "/input_tokens_details/cache_write_tokens",
    reasoning: "/output_tokens_details/reasoning_tokens",
    input_includes_cache: true,
};

/// The longest name of a tool that is sent.
pub(super) const NAME_MAX: usize = 128;

/// The wire's name.
pub(super) const WIRE: &str = "responses";

/// What a piece of an item is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FragmentKind {
    Text,
    Refusal,
    Arguments,
    Summary,
    Reasoning,
}

impl FragmentKind {
    /// The piece that an event brings, and whether it brings the whole of it.
    pub(super) fn from_event_type(event: &str) -> Option<(Self, bool)> {
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
            "reasoning_text" => Self::Reasoning,
            _ => return None,
        };
        Some((piece, whole))
    }

    /// The field in which a piece comes whole.
    pub(super) const fn full_text(self) -> &'static str {
        match self {
            Self::Text | Self::Summary | Self::Reasoning => "text",
            Self::Refusal => "refusal",
            Self::Arguments => "arguments",
        }
    }
}

/// How a response ended, as the provider says it.
#[derive(Debug, Default)]
pub(super) struct StopInfo {
    pub(super) status: String,
    pub(super) reason: Option<String>,
}

impl StopInfo {
    /// Why the model stopped.
    pub(super) fn stop_reason(self, refuses: bool, has_calls: bool) -> StopReason {
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
