//! Statuses, waits and outcomes of runs.
//!
//! Invariant: a status is always derived from the journal.

use serde::{Deserialize, Serialize};

use crate::failure::FailureClass;
use crate::id::{GateId, RunId};
use crate::policy::budget::BudgetCap;
use crate::policy::effect_key::EffectKeyHolder;
use crate::policy::gate::Answer;
use crate::raw::RawJson;
use crate::text_macros::string_enum;
use crate::time::Timestamp;

string_enum! {
    /// Status of a run, as shown to users.
    pub enum Status {
        /// No worker has claimed the run yet.
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

/// What a parked run waits for. The times in the variants only describe the wait: if it ends at a
/// certain time, a timer in the store wakes the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The run waits for the approval of calls or of its result.
    Approval(Vec<GateId>),
    /// The run waits for the answer to a question.
    Question(GateId),
    /// The run waits for a signal from a program.
    Signal(GateId),
    /// The run waits for help, because the agent is blocked.
    Blocked(GateId),
    /// The run waits until a time that the agent chose.
    Timer(Timestamp),
    /// The run waits for the end of this child run.
    Child(RunId),
    /// The run waits for the result of a tool call and asks the tool again at this time.
    Tool(Timestamp),
    /// The run waits until a provider's rate limit ends.
    RateLimit(Timestamp),
    /// The run waits until a call or the run itself is retried.
    Retry(Timestamp),
    /// The run waits for a provider that is unavailable.
    Outage {
        /// Time at which the wait for the provider began.
        since: Timestamp,
        /// Time of the next request to the provider.
        until: Timestamp,
        /// Class of the provider's last failure.
        class: FailureClass,
    },
    /// The run waits until one more sandbox may run at its sandbox provider.
    SandboxSlot,
    /// The run waits for a higher budget cap.
    Budget(BudgetCap),
    /// The run waits until model requests of other runs of its tree (its root run and all
    /// descendants) release the amounts that they hold (reserve) of the budget.
    BudgetHeld,
    /// The run waits because a spend cap does not cover its next model call.
    Cap(SpendCapWait),
    /// The run waits for this tool call of another run, which has the same effect key (the key of
    /// an effect that happens at most once).
    Key(EffectKeyHolder),
    /// The run has answered and waits for follow-up messages until this time.
    Message(Timestamp),
    /// The run waits for another worker to claim it, because its last worker has given it up
    /// without a crash, such as at a shutdown.
    Worker,
    /// A message or a command woke the run before its start time, and the run waits for that time
    /// again.
    StartAt(Timestamp),
    /// A message or a command woke the run before the previous run of its batch had completed, and
    /// the run waits for that run again.
    Batch,
}

impl WaitReason {
    /// Returns the name of the wait reason in the API, such as `approval`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Approval(_) => "approval",
            Self::Question(_) => "question",
            Self::Signal(_) => "signal",
            Self::Blocked(_) => "blocked",
            Self::Timer(_) => "timer",
            Self::Child(_) => "child",
            Self::Tool(_) => "tool",
            Self::RateLimit(_) => "rate_limit",
            Self::Retry(_) => "retry",
            Self::Outage { .. } => "outage",
            Self::SandboxSlot => "sandbox_slot",
            Self::Budget(_) => "budget",
            Self::BudgetHeld => "budget_held",
            Self::Cap(_) => "cap",
            Self::Key(_) => "key",
            Self::Message(_) => "message",
            Self::Worker => "worker",
            Self::StartAt(_) => "start_at",
            Self::Batch => "batch",
        }
    }

    /// Returns the time at which the wait ends even if no event arrives. `None` if there is no such
    /// time.
    pub const fn end_time(&self) -> Option<Timestamp> {
        match self {
            Self::Timer(at)
            | Self::Tool(at)
            | Self::RateLimit(at)
            | Self::Retry(at)
            | Self::Outage { until: at, .. }
            | Self::Message(at)
            | Self::StartAt(at)
            | Self::Cap(SpendCapWait { until: at, .. }) => Some(*at),
            Self::Approval(_)
            | Self::Question(_)
            | Self::Signal(_)
            | Self::Blocked(_)
            | Self::Child(_)
            | Self::SandboxSlot
            | Self::Budget(_)
            | Self::BudgetHeld
            | Self::Key(_)
            | Self::Worker
            | Self::Batch => None,
        }
    }
}

/// A wait of a run at a spend cap that does not cover its next model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendCapWait {
    /// Id of the spend cap.
    pub cap: String,
    /// Key, actor, agent or model whose usage the cap counts. Empty if the cap counts all usage
    /// together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Time at which the window of the cap ends.
    pub until: Timestamp,
    /// Needed amount, remaining amount and limit when the wait began. `None` in journals of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<SpendCapShortage>,
}

/// Needed amount, remaining amount and limit of a spend cap when a run began to wait, in the unit
/// of the cap: millionths of a US dollar, tokens or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendCapShortage {
    /// Largest amount that the next model call can use.
    pub needed: u64,
    /// Amount that was left of the spend cap when the run began to wait.
    pub left: u64,
    /// Limit of the spend cap when the run began to wait.
    pub limit: u64,
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunOutput {
    /// Final text of the agent.
    pub text: String,
    /// Structured result of the run, if there is one.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "RawJson::deserialize_null_as_some"
    )]
    pub data: Option<RawJson>,
    /// Confidence in the result as stated by the agent, from 0 to 100. `None` if the agent stated
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<RawJson>,
    /// Answer with which a person approved the result, if it has a note or a payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<ResultApprovalAnswer>,
}

/// Answer with which a person approved the result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultApprovalAnswer {
    /// Principal that answered, such as `cli:anna`.
    pub by: String,
    /// Decision of the answer: `approve` or `edit`.
    pub decision: String,
    /// Note that the person added to the answer. `None` if there is no note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Structured data that the person added to the answer, such as what to do with the result.
    /// `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
