//! Token counts and event types of the Responses API, and the mapping of its stop reasons.

use longhaul_core::message::StopReason;

use crate::token_counts::UsageJsonPaths;

/// JSON paths of the token counts in the `usage` object of a response.
pub(super) const USAGE: UsageJsonPaths = UsageJsonPaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/input_tokens_details/cached_tokens"],
    cache_write: "/input_tokens_details/cache_write_tokens",
    reasoning: "/output_tokens_details/reasoning_tokens",
    input_includes_cache: true,
};

/// Kind of text that a fragment of an output item belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextKind {
    Text,
    Refusal,
    Arguments,
    Summary,
    Reasoning,
}

impl TextKind {
    /// Returns the kind of fragment that an event of this type contains, and whether the event
    /// contains the full text instead of a fragment. `None` means that the event contains no
    /// fragment.
    pub(super) fn of_event(event_type: &str) -> Option<(Self, bool)> {
        let (stem, end) = event_type.strip_prefix("response.")?.rsplit_once('.')?;
        let is_full_text = match end {
            "delta" => false,
            "done" => true,
            _ => return None,
        };
        let kind = match stem {
            "output_text" => Self::Text,
            "refusal" => Self::Refusal,
            "function_call_arguments" => Self::Arguments,
            "reasoning_summary_text" => Self::Summary,
            "reasoning_text" => Self::Reasoning,
            _ => return None,
        };
        Some((kind, is_full_text))
    }

    /// Returns the name of the event field that contains the full text.
    pub(super) const fn full_text_field(self) -> &'static str {
        match self {
            Self::Text | Self::Summary | Self::Reasoning => "text",
            Self::Refusal => "refusal",
            Self::Arguments => "arguments",
        }
    }
}

/// Status and reason with which a response ended, as reported by the provider.
#[derive(Debug, Default)]
pub(super) struct ResponseStopInfo {
    pub(super) status: String,
    pub(super) reason: Option<String>,
}

impl ResponseStopInfo {
    /// Maps the provider's status and reason to a `StopReason`.
    pub(super) fn stop_reason(self, has_refusal: bool, has_calls: bool) -> StopReason {
        match (self.status.as_str(), self.reason.as_deref()) {
            ("completed", _) if has_refusal => StopReason::Refusal,
            ("completed", _) if has_calls => StopReason::ToolUse,
            ("completed", _) => StopReason::EndTurn,
            ("incomplete", Some("max_output_tokens" | "max_tokens")) => StopReason::MaxTokens,
            ("incomplete", Some("content_filter")) => StopReason::Refusal,
            ("incomplete", Some(other)) => StopReason::Other(other.to_owned()),
            (other, _) => StopReason::Other(other.to_owned()),
        }
    }
}
