//! The script of a scripted model: its list of replies, parsed, validated and immutable.

use longhaul_core::failure::FailureClass;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use serde_json::Value;

use crate::scripted::reply_index::{self, ScriptLoop};

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
        reply_index::reply_index(turn, self.replies.len(), self.repeat)
    }
}

/// A reply in a script: text, tool calls, delay, usage and failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptedReply {
    /// Text of the reply. `None` means that the reply only calls tools.
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<ScriptedToolCall>,
    /// Delay before the response to each attempt, whether the attempt succeeds or fails.
    pub(crate) delay: Millis,
    /// Usage given by the script. `None` means that the usage is estimated.
    pub(crate) usage: Option<Usage>,
    pub(crate) failure: Option<ScriptedFailure>,
}

/// A tool call of a scripted reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptedToolCall {
    pub(crate) name: String,
    pub(crate) input: ScriptedArguments,
}

/// Arguments of a scripted tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScriptedArguments {
    /// Arguments without templates, which are the same bytes in every reply.
    Literal(RawJson),
    /// Arguments with templates in their strings.
    Templated(Value),
}

/// A scripted failure: the first attempts at a reply fail with an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScriptedFailure {
    pub(crate) status: u16,
    pub(crate) class: FailureClass,
    /// Number of attempts that fail before the reply is returned.
    pub(crate) times: u32,
}

impl ScriptedFailure {
    /// Creates a failure with this HTTP status. `None` means that the status is not an error.
    pub(crate) const fn from_status(status: u16, times: u32) -> Option<Self> {
        let class = match status {
            429 => FailureClass::RateLimit,
            503 | 529 => FailureClass::Overloaded,
            408 | 504 => FailureClass::Timeout,
            401 | 403 => FailureClass::Auth,
            402 => FailureClass::Quota,
            413 => FailureClass::ContextOverflow,
            400..=499 => FailureClass::InvalidRequest,
            500..=599 => FailureClass::Server,
            _ => return None,
        };
        Some(Self { status, class, times })
    }
}
