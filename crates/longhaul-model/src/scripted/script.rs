//! The script of a scripted model: its list of replies, parsed, validated and immutable.
//!
//! Invariant: the selected reply depends only on the turn and the script. No state is kept, so
//! crashes and compaction can't change the order of replies.

use jiff::SignedDuration;
use longhaul_core::failure::FailureClass;
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Spanned;

/// Script of a scripted model, with at least one reply. All templates in it are valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    pub(crate) replies: Vec<ScriptedReply>,
    pub(crate) repeat: Option<ScriptLoop>,
}

impl Script {
    pub fn reply_count(&self) -> usize {
        self.replies.len()
    }

    /// Returns whether the script has no replies. Always false for a parsed script.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Returns the index, from 0, of the reply for the given turn.
    pub fn reply_index(&self, turn: u32) -> usize {
        reply_index(turn, self.replies.len(), self.repeat)
    }
}

/// A loop in a script: a range of replies that is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptLoop {
    /// Index of the first repeated reply, from 0.
    pub from: usize,
    /// Index after the last repeated reply.
    pub to: usize,
    /// Number of times that the range is played in total.
    pub times: u32,
}

/// Returns the index, from 0, of the reply for the given turn, counted from 1. After the last reply
/// of the script, that reply repeats.
pub fn reply_index(turn: u32, reply_count: usize, script_loop: Option<ScriptLoop>) -> usize {
    let turn_index = u64::from(turn.saturating_sub(1));
    let index = match script_loop {
        None => turn_index,
        Some(script_loop) => reply_index_in_loop(turn_index, script_loop),
    };
    let last = reply_count.saturating_sub(1);
    usize::try_from(index).map_or(last, |index| index.min(last))
}

fn reply_index_in_loop(turn_index: u64, script_loop: ScriptLoop) -> u64 {
    let (from, to) = (script_loop.from as u64, script_loop.to as u64);
    let length = to.saturating_sub(from);
    let Some(offset) = turn_index.checked_sub(from) else {
        return turn_index;
    };
    let rounds = length.saturating_mul(u64::from(script_loop.times));
    match offset.checked_sub(rounds) {
        None => from + offset % length,
        Some(turns_after_loop) => to.saturating_add(turns_after_loop),
    }
}

/// Error in a script: where it is, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {message}")]
pub struct ScriptError {
    /// File name or other origin of the script. Line and column follow, from 1, if the error is not
    /// about the whole script.
    pub location: String,
    /// Description of what is wrong with the script and how to fix it.
    pub message: String,
}

/// A reply in a script: text, tool calls, delay, usage and failure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedReply {
    /// Text of the reply. `None` means that the reply only calls tools.
    pub(crate) text: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) tools: Vec<ScriptedToolCall>,
    /// Delay before the response to each attempt, whether the attempt succeeds or fails.
    #[serde(default, deserialize_with = "parse_delay")]
    pub(crate) delay: Millis,
    /// Usage given by the script. `None` means that the usage is estimated.
    pub(crate) usage: Option<ScriptedUsage>,
    pub(crate) error: Option<ScriptedFailure>,
}

/// A tool call of a scripted reply, with templates in the strings of its input.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedToolCall {
    pub(crate) name: Spanned<String>,
    pub(crate) input: Option<Spanned<Value>>,
}

/// Token counts of a scripted reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScriptedUsage {
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
}

impl ScriptedUsage {
    pub(crate) const fn to_usage(self) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cached_tokens: self.cached_tokens,
            cache_write_tokens: self.cache_write_tokens,
            reasoning_tokens: self.reasoning_tokens,
            estimated: false,
        }
    }
}

/// A scripted failure: the first attempts at a reply fail with an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedFailure {
    #[serde(deserialize_with = "parse_error_status")]
    pub(crate) status: u16,
    /// Number of attempts that fail before the reply is returned.
    #[serde(default = "default_times")]
    pub(crate) times: u32,
}

const fn default_times() -> u32 {
    1
}

impl ScriptedFailure {
    pub(crate) const fn class(self) -> FailureClass {
        match self.status {
            429 => FailureClass::RateLimit,
            503 | 529 => FailureClass::Overloaded,
            408 | 504 => FailureClass::Timeout,
            401 | 403 => FailureClass::Auth,
            402 => FailureClass::Quota,
            413 => FailureClass::ContextOverflow,
            500.. => FailureClass::Server,
            _ => FailureClass::InvalidRequest,
        }
    }
}

fn parse_delay<'de, D: Deserializer<'de>>(value: D) -> Result<Millis, D::Error> {
    let Some(text) = Option::<String>::deserialize(value)? else {
        return Ok(Millis::default());
    };
    let parsed = text.parse::<SignedDuration>().ok();
    let duration = parsed.and_then(|duration| std::time::Duration::try_from(duration).ok());
    duration.map(Millis::from).ok_or_else(|| {
        D::Error::custom(format!("delay: `{text}` is not a duration; use one such as 50ms or 2s"))
    })
}

fn parse_error_status<'de, D: Deserializer<'de>>(value: D) -> Result<u16, D::Error> {
    let status = u16::deserialize(value)?;
    match status {
        400..=599 => Ok(status),
        _ => Err(D::Error::custom(format!(
            "error: status {status} is not an error status; use one from 400 to 599"
        ))),
    }
}
