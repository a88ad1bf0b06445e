//! The JSON of a Messages stream, as far as it is read.
//!
//! Never: refuses a field, an event or a word that it does not know.

use longhaul_core::message::StopReason;

use crate::token_counts::UsagePaths;

/// The Messages API.
#[derive(Debug)]
pub(super) struct MessagesApi {
    /// Whose blocks a reply over this wire is made of.
    pub(super) api: String,
}

/// Where tokens are counted.
pub(super) const USAGE: UsagePaths = UsagePaths {
    input: "/input_tokens",
    output: "/output_tokens",
    total: None,
    cached: &["/cache_read_input_tokens"],
    cache_write: "/cache_creation_input_tokens",
    reasoning: "/output_tokens_details/thinking_tokens",
    input_includes_cache: false,
};

/// The longest name of a tool that is sent.
pub(super) const NAME_MAX: usize = 128;

/// The wire's name.
pub(super) const WIRE: &str = "anthropic";

/// Why the model stopped. A window that is full cuts a reply off as a token
/// limit does, and a reply that met a stop sequence is as whole as another.
pub(super) fn stop_reason(reason: Option<&str>, has_calls: bool) -> StopReason {
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
