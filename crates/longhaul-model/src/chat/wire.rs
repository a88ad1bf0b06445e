//! Constants of the Chat Completions API, and the mapping of its finish reasons.

use longhaul_core::message::StopReason;
use serde_json::json;

use crate::chat::quirks::ServerQuirks;
use crate::lenient_json::is_non_empty_json_value;
use crate::lenient_object::LenientObject;
use crate::token_counts::UsageJsonPaths;

/// The Chat Completions API of one provider, with the quirks of the provider's server.
#[derive(Debug)]
pub(super) struct ChatCompletionsApi {
    pub(super) quirks: ServerQuirks,
    /// Label of this API and its provider, such as `chat:moonshot`, which is stored with each
    /// reply. The provider is included because servers add fields that only they accept back.
    pub(super) label: String,
}

impl ChatCompletionsApi {
    pub(super) const fn new(api: String, quirks: ServerQuirks) -> Self {
        Self { quirks, label: api }
    }
}

/// Name of the Chat Completions API, part of the label that is stored with each reply.
pub(super) const API_NAME: &str = "chat";

/// Name that most servers use for the field with the reasoning text.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";

/// Name that some servers use for the field with the reasoning text.
pub(super) const REASONING: &str = "reasoning";

/// Field of a stored thinking block that says which response field contained the text of the block.
pub(super) const REASONING_FIELD: &str = "field";

/// JSON paths of the token counts in the `usage` object of a response. Cached tokens are read as
/// OpenAI, Moonshot and DeepSeek report them.
pub(super) const USAGE: UsageJsonPaths = UsageJsonPaths {
    input: "/prompt_tokens",
    output: "/completion_tokens",
    total: Some("/total_tokens"),
    cached: &["/prompt_tokens_details/cached_tokens", "/cached_tokens", "/prompt_cache_hit_tokens"],
    cache_write: "/prompt_tokens_details/cache_write_tokens",
    reasoning: "/completion_tokens_details/reasoning_tokens",
    input_includes_cache: true,
};

/// Maximum number of characters of a tool name in a request.
pub(super) const NAME_MAX: usize = 64;

/// Whether a chunk of the stream is an error, in any of the known formats.
pub(super) fn is_error_chunk(chunk: &LenientObject<'_>) -> bool {
    let object = chunk.raw_field("object");
    let is_error_object = object.is_some_and(|kind| kind.get() == r#""error""#);
    is_error_object || chunk.raw_field("error").is_some_and(is_non_empty_json_value)
}

/// Whether a choice of a response is the first choice. Only one choice is requested.
pub(super) fn is_first_choice(choice: &LenientObject<'_>) -> bool {
    choice.number_field("index").is_none_or(|index| index == 0)
}

/// Returns the error that a choice of a response contains. `None` means that it contains no error.
pub(super) fn choice_error(choice: &LenientObject<'_>) -> Option<String> {
    let error = choice.raw_field("error").filter(|error| is_non_empty_json_value(error))?;
    Some(format!(r#"{{"error":{}}}"#, error.get()))
}

/// Maps the finish reason to a `StopReason`. Servers confuse `stop` and `tool_calls`, so the
/// content of the reply decides between them.
pub(super) fn stop_reason(
    finish_reason: Option<&str>,
    has_calls: bool,
    is_refusal: bool,
) -> StopReason {
    match finish_reason {
        Some("length" | "max_tokens" | "model_length") => StopReason::MaxTokens,
        Some("content_filter" | "sensitive" | "refusal") => StopReason::Refusal,
        Some("stop" | "eos" | "eos_token" | "stop_sequence" | "end_turn") | None => {
            match (is_refusal, has_calls) {
                (true, _) => StopReason::Refusal,
                (false, true) => StopReason::ToolUse,
                (false, false) => StopReason::EndTurn,
            }
        }
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some(other) => StopReason::Other(other.to_owned()),
    }
}

/// Returns the error for a finish reason that means that the reply failed. `None` means that the
/// finish reason is not an error.
pub(super) fn error_for_finish_reason(finish_reason: &str) -> Option<String> {
    let kind = match finish_reason {
        "error" | "abort" | "network_error" => "server_error",
        "insufficient_system_resource" => "server_overloaded",
        _ => return None,
    };
    let message = format!("the reply ended for the reason `{finish_reason}`");
    Some(json!({ "error": { "type": kind, "message": message } }).to_string())
}
