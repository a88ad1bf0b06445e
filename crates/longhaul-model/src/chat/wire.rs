//! The JSON of a stream of completions, as far as it is read.
//!
//! Never: refuses a field or a word that it does not know.

use longhaul_core::message::StopReason;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::arguments::{count, says, word};
use crate::chat::quirks::Quirks;
use crate::counts::UsagePaths;

/// The Chat Completions API of one provider.
#[derive(Debug)]
pub(super) struct Completions {
    pub(super) quirks: Quirks,
    /// Whose fields a reply over this wire is made of. Servers that speak this
    /// API add fields that only they themselves take back, so it names the
    /// provider too.
    pub(super) dialect: String,
}

impl Completions {
    pub(super) const fn new(dialect: String, quirks: Quirks) -> Self {
        Self { quirks, dialect }
    }
}

/// The wire's name.
pub(super) const WIRE: &str = "chat";

/// Where thoughts stand, as most servers call it.
pub(super) const REASONING_CONTENT: &str = "reasoning_content";

/// As the others do.
pub(super) const REASONING: &str = "reasoning";

/// Where a thought notes which of these names it came under.
pub(super) const FIELD: &str = "field";

/// Where tokens are counted. What came from a cache stands as OpenAI, Moonshot and DeepSeek
/// say it.
pub(super) const USAGE: UsagePaths = UsagePaths {
    input: "/prompt_tokens",
    output: "/completion_tokens",
    total: Some("/total_tokens"),
    cached: &[
        "/prompt_tokens_details/cached_tokens",
        "/cached_tokens",
        "/prompt_cache_hit_tokens",
    ],
    cache_write: "/prompt_tokens_details/cache_write_tokens",
    reasoning: "/completion_tokens_details/reasoning_tokens",
    is_cache_input: true,
};

/// The longest name of a tool that is sent.
pub(super) const NAME_MAX: usize = 64;

/// One chunk, or a whole completion: they differ in what a choice holds.
#[derive(Debug, Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) choices: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
}

impl Frame<'_> {
    /// Whether it says that something failed.
    pub(super) fn is_error(&self) -> bool {
        let named = self.object.is_some_and(|kind| kind.get() == r#""error""#);
        named || self.error.is_some_and(says)
    }
}

/// One of the replies of a frame. Only the first was asked for.
#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default, deserialize_with = "count")]
    index: Option<u64>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "word")]
    pub(super) finish_reason: Option<String>,
    /// Where Moonshot counts.
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
}

impl Choice<'_> {
    pub(super) fn is_first(&self) -> bool {
        self.index.is_none_or(|index| index == 0)
    }

    /// The error, as if it stood where it belongs.
    pub(super) fn error(&self) -> Option<String> {
        let error = self.error.filter(|error| says(error))?;
        Some(format!(r#"{{"error":{}}}"#, error.get()))
    }
}

/// Why the model stopped. Servers say `stop` where they mean calls, and the
/// other way round: what counts is what is there.
pub(super) fn stop(reason: Option<&str>, has_calls: bool, refused: bool) -> StopReason {
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
pub(super) fn broken_off(reason: &str) -> Option<String> {
    let kind = match reason {
        "error" | "abort" | "network_error" => "server_error",
        "insufficient_system_resource" => "server_overloaded",
        _ => return None,
    };
    let words = format!("the reply ended for the reason `{reason}`");
    Some(json!({ "error": { "type": kind, "message": words } }).to_string())
}
