//! Statuses and outcomes of runs.
//!
//! Invariant: a status is always derived from the journal.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::gate::Answer;
use crate::raw::RawJson;
use crate::text_macros::string_enum;
use crate::wait::WaitKind;

string_enum! {
    /// Status of a run, as shown to users.
    #[derive(Default)]
    pub enum Status {
        /// No worker has claimed the run yet.
        #[default]
        Pending = "pending",
        /// A worker drives the run, or the run is ready to be claimed.
        Running = "running",
        /// The run is parked until the event that it waits for happens.
        Waiting = "waiting",
        /// The run is parked because the agent is blocked or something that it needs is missing.
        Blocked = "blocked",
        /// A person paused the run.
        Paused = "paused",
        /// The run ended with a result.
        Completed = "completed",
        /// The run ended with an error.
        Failed = "failed",
        /// The run ended because it was cancelled.
        Cancelled = "cancelled",
    }
}

impl Status {
    /// Returns whether a run with this status has ended.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Running | Self::Waiting | Self::Blocked | Self::Paused => false,
        }
    }
}

/// Scheduling state of a run, as a store keeps it in the run's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadState<'a> {
    /// Any worker may claim the run.
    Ready,
    /// A worker has claimed the run.
    Leased,
    /// The run waits for this reason, whose status may be `blocked`.
    Parked {
        reason: Option<&'a str>,
        blocked: bool,
    },
    /// The run is queued in its lane.
    LaneWait,
    Paused,
    /// The run has ended with this status.
    Ended(Status),
}

impl<'a> HeadState<'a> {
    /// Returns the status of a run, and the reason why it waits. `is_new` is whether no worker has
    /// claimed the run yet.
    pub const fn status_and_reason(self, is_new: bool) -> (Status, Option<&'a str>) {
        let (status, reason) = match self {
            Self::Ready => (Status::Running, Some(WaitKind::Worker.code())),
            Self::Leased => return (Status::Running, None),
            Self::Parked { reason, blocked: true } => (Status::Blocked, reason),
            Self::Parked { reason, blocked: false } => (Status::Waiting, reason),
            Self::LaneWait => (Status::Waiting, Some(WaitKind::Lane.code())),
            Self::Paused => return (Status::Paused, None),
            Self::Ended(status) => return (status, None),
        };
        (if is_new { Status::Pending } else { status }, reason)
    }
}

/// Outcome of a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The run completed with this result.
    Completed(RunOutput),
    Failed(RunError),
    /// The run was cancelled for this reason.
    Cancelled(String),
}

impl RunOutcome {
    /// Returns the final status of a run with this outcome.
    pub const fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Cancelled(_) => Status::Cancelled,
        }
    }
}

/// Result of a completed run.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOutput {
    /// Final text of the agent.
    pub text: String,
    /// Structured result of the run, if there is one.
    #[serde(deserialize_with = "RawJson::deserialize_null_as_some")]
    pub data: Option<RawJson>,
    /// Confidence in the result as stated by the agent, from 0 to 100. `None` if the agent stated
    /// none.
    pub confidence: Option<u8>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<RawJson>,
    /// Answer with which a person approved the result, if it has a note or a payload.
    pub answer: Option<ResultApprovalAnswer>,
}

/// Answer with which a person approved the result of a run.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultApprovalAnswer {
    /// Principal that answered, such as `cli:anna`.
    pub by: String,
    /// Decision of the answer: `approve` or `edit`.
    pub decision: String,
    /// Note that the person added to the answer. `None` if there is no note.
    pub note: Option<String>,
    /// Structured data that the person added to the answer, such as what to do with the result.
    /// `None` if there is none.
    pub payload: Option<RawJson>,
}

impl From<&Answer> for ResultApprovalAnswer {
    fn from(answer: &Answer) -> Self {
        Self {
            by: answer.by.clone(),
            decision: answer.decision.as_str().to_owned(),
            note: answer.note.clone(),
            payload: answer.payload.clone(),
        }
    }
}

/// Error of a failed run: a code for programs, and a message and a hint for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunError {
    /// Error code, such as `turn_limit` or `auth`.
    pub code: String,
    /// Description of the error for people.
    pub message: String,
    /// Suggestion for people how to fix the error. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Text of the final reply, if the reply was cut off or its result was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_text: Option<String>,
}

impl RunError {
    pub fn new(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), hint: hint.into(), partial_text: None }
    }
}
