//! What a script says, checked and ready to be played.
//!
//! Never: holds what was played. It is read once and then only looked at.

use longhaul_core::failure::FailureClass;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_core::usage::Usage;
use serde_json::Value;

use crate::scripted::reply_index::{self, Loop};

/// A whole script: at least one reply, and every template in it compiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    pub(crate) replies: Vec<ScriptedReply>,
    pub(crate) repeat: Option<Loop>,
}

impl Script {
    /// How many replies are written down.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Never true of a script that was read.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// The place, from 0, of the reply that this turn gets.
    pub fn reply_index(&self, turn: u32) -> usize {
        reply_index::reply_index(turn, self.replies.len(), self.repeat)
    }
}

/// One written reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptedReply {
    /// What is said; none when the reply only calls tools.
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<ScriptedCall>,
    /// How long the call takes, whether it fails or not.
    pub(crate) delay: Millis,
    /// What the script says was used; none: it is guessed.
    pub(crate) usage: Option<Usage>,
    pub(crate) failure: Option<ScriptedFailure>,
}

/// A tool that a reply calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptedCall {
    pub(crate) name: String,
    pub(crate) input: ScriptedInput,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScriptedInput {
    /// Without templates: the same bytes every time.
    Literal(RawJson),
    /// With a template in some string.
    Templated(Value),
}

/// The first tries of a call fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScriptedFailure {
    pub(crate) status: u16,
    pub(crate) class: FailureClass,
    /// How many tries fail.
    pub(crate) times: u32,
}

impl ScriptedFailure {
    /// An outage with this status; none if the status is no failure.
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
