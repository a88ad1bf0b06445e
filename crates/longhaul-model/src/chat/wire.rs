//! The JSON of a stream of completions, as far as it is read.
//!
//! Never: refuses a field or a word that it does not know.

use longhaul_core::message::StopReason;
use serde_json::json;

use crate::chat::quirks::Quirks;
use crate::lenient_json::is_present;
use crate::lenient_object::LenientObject;
use crate::token_counts::UsagePaths;

/// The Chat Completions API of one provider.
#[derive(Debug)]
pub(super) struct ChatCompletionsApi {
    pub(super) quirks: Quirks,
    /// Whose fields a reply over this wire is made of. Servers that speak this
    /// API add fields that only they themselves take back, so it names the
    /// provider too.
    pub(super) api: String,
}

impl ChatCompletionsApi {
    pub(super) const fn new(dialect: String, quirks: Quirks) -> Self {
        Self { quirks, api: dialect }
    }
}

/// The wire's name.
pub(super) const WIRE: &str = "chat";

/// Where thoughts stand, as most servers call it.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";

/// As the others do.
pub(super) const REASONING: &str = "reasoning";

/// Where a thought notes which of these names it came under.
pub(super) const REASONING_FIELD: &str = "field";

/// Where tokens are counted. What came from a cache stands as OpenAI, Moonshot and DeepSeek
/// say it.
pub(super) const USAGE: UsagePaths = UsagePaths {
    input: "/prompt_tokens",
    output: "/completion_tokens",
    total: Some("/total_tokens"),
    cached: &["/prompt_tokens_details/cached_tokens", "/cached_tokens", "/prompt_cache_hit_tokens"],
    cache_write: "/prompt_tokens_details/cache_write_tokens",
    reasoning: "/completion_tokens_details/reasoning_tokens",
    input_includes_cache: true,
};

/// The longest name of a tool that is sent.
pub(super) const NAME_MAX: usize = 64;

/// Whether a frame is an error, in any of the ways servers say so.
pub(super) fn is_error(frame: &LenientObject<'_>) -> bool {
    let named = frame.raw("object");
    let named = named.is_some_and(|kind| kind.get() == r#""error""#);
    named || frame.raw("error").is_some_and(is_present)
}

/// Whether a choice is the one that was asked for.
pub(super) fn is_first(choice: &LenientObject<'_>) -> bool {
    choice.count("index").is_none_or(|index| index == 0)
}

/// The error that stands in the place of a choice's end.
pub(super) fn error_of(choice: &LenientObject<'_>) -> Option<String> {
    let error = choice.raw("error").filter(|error| is_present(error))?;
    Some(format!(r#"{{"error":{}}}"#, error.get()))
}

/// Why the model stopped. Servers say `stop` where they mean calls, and the
/// other way round: what counts is what is there.
pub(super) fn stop_reason(reason: Option<&str>, has_calls: bool, refused: bool) -> StopReason {
    match reason {
        Some("length" | "max_tokens" | "model_length") => StopReason::MaxTokens,
        Some("content_filter" | "sensitive" | "refusal") => StopReason::Refusal,
        Some("stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn") | None => {
            match (refused, has_calls) {
                (true, _) => StopReason::Refusal,
                (false, true) => StopReason::ToolUse,
                (false, false) => StopReason::EndTurn,
            }
        }
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}

/// The error behind a reason to stop that is none: the reply was broken off.
pub(super) fn error_for_reason(reason: &str) -> Option<String> {
    let kind = match reason {
        "error" | "abort" | "network_error" => "server_error",
        "insufficient_system_resource" => "server_overloaded",
        _ => return None,
    };
    let words = format!("the reply ended for the reason `{reason}`");
    Some(json!({ "error": { "type": kind, "message": words } }).to_string())
}
