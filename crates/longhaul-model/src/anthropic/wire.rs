//! Constants of the Messages API, and the mapping of its stop reasons.

use longhaul_core::message::StopReason;

use crate::token_counts::UsageJsonPaths;

/// The Messages API of one provider.
#[derive(Debug)]
pub(super) struct MessagesApi {
    /// Label of this API and its provider, such as `anthropic`, which is stored with each reply.
    pub(super) label: String,
}

/// JSON paths of the token counts in the `usage` object of a response.
pub(super) const USAGE: UsageJsonPaths = UsageJsonPaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/cache_read_input_tokens"],
    cache_write: "/cache_creation_input_tokens",
    reasoning: "/output_tokens_details/thinking_tokens",
    input_includes_cache: false,
};

/// Maximum number of characters of a tool name in a request.
pub(super) const NAME_MAX: usize = 128;

/// Name of the Messages API, part of the label that is stored with each reply.
pub(super) const API_NAME: &str = "anthropic";

/// Maps the provider's stop reason to a `StopReason`. A full context window counts as a token
/// limit, and a reply that ends at a stop sequence counts as complete.
pub(super) fn stop_reason(provider_reason: Option<&str>, has_calls: bool) -> StopReason {
    match provider_reason {
        Some("end_turn" | "stop_sequence") | None if has_calls => StopReason::ToolUse,
        Some("end_turn" | "stop_sequence") | None => StopReason::EndTurn,
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("pause_turn") => StopReason::PauseTurn,
        Some("refusal") => StopReason::Refusal,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}
