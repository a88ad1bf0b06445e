//! How a run stands: the words that lists, pages and answers share.
//!
//! Never: a second truth. A status follows from the journal.

use serde::{Deserialize, Serialize};

use crate::id::{GateId, RunId};
use crate::policy::budget::Cap;
use crate::raw::RawJson;
use crate::text_macros::string_enum;
use crate::time::Timestamp;

string_enum! {
    /// The eight states of a run.
    pub enum Status {
        /// Never claimed.
        Pending = "pending",
        /// A worker drives it, or will as soon as one has time.
        Running = "running",
        /// Parked until something happens.
        Waiting = "waiting",
        /// Parked because the agent can't go on, or a part is missing.
        Blocked = "blocked",
        /// Stopped by a person for a while.
        Paused = "paused",
        /// Ended with a result.
        Completed = "completed",
        /// Ended without.
        Failed = "failed",
        /// Ended because somebody said so.
        Cancelled = "cancelled",
    }
}

impl Status {
    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Waiting | Self::Blocked | Self::Paused => false,
        }
    }
}

/// What a parked run waits for. Where a point in time stands, the wait ends then
/// by itself; the row of the timer is what counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// People to allow calls or a result.
    Approval(Vec<GateId>),
    /// A person's words.
    Question(GateId),
    /// A program's word.
    Signal(GateId),
    /// Somebody to help an agent that can't go on.
    Blocked(GateId),
    /// A point in time that the agent asked for.
    Timer(Timestamp),
    /// A run that this one asked for.
    Child(RunId),
    /// A provider that wants fewer requests.
    RateLimit(Timestamp),
    /// The next try of a call or of the run.
    Retry(Timestamp),
    /// A free sandbox.
    SandboxSlot,
    /// More budget.
    Budget(Cap),
    /// A follow-up, in a run that is kept open.
    Message(Timestamp),
    /// A worker: the last one let go of the run in good order.
    Worker,
}

impl Wait {
    /// The reason as it stands in answers.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Approval(_) => "approval",
            Self::Question(_) => "question",
            Self::Signal(_) => "signal",
            Self::Blocked(_) => "blocked",
            Self::Timer(_) => "timer",
            Self::Child(_) => "child",
            Self::RateLimit(_) => "rate_limit",
            Self::Retry(_) => "retry",
            Self::SandboxSlot => "sandbox_slot",
            Self::Budget(_) => "budget",
            Self::Message(_) => "message",
            Self::Worker => "worker",
        }
    }

    /// When the wait ends by itself.
    pub const fn until(&self) -> Option<Timestamp> {
        if let Self::Timer(at) | Self::RateLimit(at) | Self::Retry(at) | Self::Message(at) = self {
            return Some(*at);
        }
        None
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a result.
    Completed(Output),
    /// Without one, and why.
    Failed(RunError),
    /// Because somebody said so.
    Cancelled(String),
}

impl Outcome {
    /// The terminal status.
    pub const fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Cancelled(_) => Status::Cancelled,
        }
    }
}

/// What a completed run gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Output {
    /// The final words.
    pub text: String,
    /// The structured answer, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_some")]
    pub data: Option<RawJson>,
    /// How sure the agent says it is, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// Things it made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<RawJson>,
}

/// What is written down is there, also where it is `null`.
fn deserialize_some<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(from).map(Some)
}

/// Why a run failed: a word for programs, a sentence and a way on for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// Such as `turn_limit` or `auth`.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What helps.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl RunError {
    /// A fault with these words.
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: hint.into() }
    }
}
