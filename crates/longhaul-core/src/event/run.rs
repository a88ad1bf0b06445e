//! Events about a run as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::FailureClass;
use crate::id::{CallId, Epoch, GateId, RunId, Seq, TimerId, WorkerId};
use crate::message::Message;
use crate::policy::budget::BudgetRaise;
use crate::raw::{RawJson, StoredText, is_default};
use crate::status::{RunError, RunOutput};
use crate::task::TaskSpec;
use crate::time::Millis;
use crate::usage::ModelPricing;
use crate::wait::WaitReason;

/// The run was submitted, and its task was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunCreated {
    /// Task that the run executes.
    pub task: TaskSpec,
}

/// A worker claimed the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunClaimed {
    pub worker: WorkerId,
    /// Epoch (fencing token) of the claim.
    pub epoch: Epoch,
}

/// The run was prepared. Its prompt is rendered once and stored, so that a replay sees the same
/// input.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPrepared {
    /// System prompt of the run.
    pub system: StoredText,
    /// Table of the run's tools: names, names in model APIs, schemas and effect classes.
    pub tools: StoredText,
    /// First messages of the conversation: the history given with the task, recent messages of the
    /// thread, and the text of the task as a user message.
    pub initial_messages: Vec<Message>,
    /// Model of the run, as `provider/model`.
    pub model: String,
    /// Fallback models, used in this order after the run's model has failed permanently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Combined pricing of the run's model and fallbacks: the highest prices, the lowest limits.
    pub pricing: ModelPricing,
    /// Model that summarizes the conversation when it exceeds the context window. `None` means the
    /// run's own model.
    pub compactor: Option<CompactionModel>,
    /// Current state of what the agent works with, such as a game world, as JSON. `None` means that
    /// no context provider was asked.
    pub world: Option<StoredText>,
    /// Values from the context provider that are injected into tool calls, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, RawJson>,
    /// Names of the tools that come from external sources, such as MCP servers. Tools that these
    /// sources add later are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external_tools: Vec<String>,
    /// Number of consecutive identical calls with identical results after which the run ends. The
    /// model is warned after half that number. `None` means no limit.
    pub identical_calls: Option<u32>,
    /// Number of consecutive turns without a new call or result after which the run ends. The model is
    /// warned after half that number. `None` means no limit.
    pub no_progress: Option<u32>,
    /// Number of consecutive replies with the same text after which the run ends. The model is warned
    /// after half that number. `None` means no limit.
    pub repeated_text: Option<u32>,
    /// Number of consecutive compactions with fewer than two turns in between after which the run
    /// ends. The model is warned after half that number. `None` means no limit.
    pub compactions: Option<u32>,
    /// When the conversation is compacted (its older part replaced by a summary), and what the
    /// summary keeps. `None` means the defaults.
    pub compaction: Option<CompactionPolicy>,
    /// Time that the context provider (the source of the current state for the prompt) needed,
    /// which counts as active time of the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub perception_active: Millis,
}

/// When a conversation is compacted, and what its summary keeps.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionPolicy {
    /// Share of the context window in percent at which the conversation is compacted. `None` means the
    /// default.
    pub at_percent: Option<u8>,
    /// What the summary has to keep, in addition to what the runtime's own rules keep. `None` means
    /// nothing else.
    pub keep: Option<String>,
}

/// A model that summarizes conversations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionModel {
    /// Model that writes the summaries, as `provider/model`.
    pub model: String,
    /// Pricing and context window of the model that writes the summaries.
    pub pricing: ModelPricing,
}

/// The run was parked, i.e. it waits for something and no worker drives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunWaiting {
    pub wait: WaitReason,
    /// Timer that ends the wait. `None` if only an event can end the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<TimerId>,
}

/// An attempt of the run has exceeded its soft timeout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOverdue {
    /// Active time (without waits) of the attempt so far.
    pub active: Millis,
    /// Soft timeout that the attempt has exceeded.
    pub soft_timeout: Millis,
}

/// An attempt of the run has reached its hard timeout. Its calls are aborted, then the attempt ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimedOut {
    /// Active time (without waits) of the attempt so far.
    pub active: Millis,
    /// Hard timeout that the attempt has reached.
    pub hard_timeout: Millis,
}

/// A worker took over a run whose previous worker had died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecovered {
    /// Epoch (fencing token) of the worker that had died.
    pub crashed_epoch: Epoch,
}

/// Request to pause, resume or cancel the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunControlRequest {
    /// Principal that made the request.
    pub by: String,
    /// Reason given by the principal. Empty if none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub cause: CancelCause,
    /// New budget caps that come with a resume. `None` leaves the caps unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise: Option<BudgetRaise>,
    /// Whether a resume of a child run raises the caps of its whole tree of runs instead of its own
    /// ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raises_tree: bool,
}

impl RunControlRequest {
    /// Creates a request by the given principal, without a reason.
    pub fn from_principal(principal: impl Into<String>) -> Self {
        Self { by: principal.into(), ..Self::default() }
    }

    #[must_use]
    pub fn with_reason(self, request_reason: impl Into<String>) -> Self {
        Self { reason: request_reason.into(), ..self }
    }
}

/// Cause of a request to cancel a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// A principal asked to cancel the run.
    #[default]
    Principal,
    /// An earlier run of the same sequential batch did not complete.
    BatchStopped,
    /// The parent run was cancelled or has failed.
    ParentEnded,
    /// A newer run interrupted the runs in its lane.
    LaneInterrupted,
}

/// The run is blocked: the agent reported a problem, or something that the agent needs is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBlocked {
    /// Gate (question to a person) whose answer unblocks the run. A message to the run does so,
    /// too.
    pub gate: GateId,
    /// Reason why the run is blocked, as a sentence.
    pub reason: String,
}

/// The run ended because it was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCancelled {
    /// Who cancelled the run and why, as one sentence.
    pub reason: String,
    /// Result that the run had when it was cancelled. `None` if it had none: only a run that stays
    /// open for messages (`keep_open`) has a result before its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<RunOutput>>,
}

/// The run ended with a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompleted {
    /// Result that the run ended with.
    pub output: RunOutput,
    /// Principal that closed the run, which was open for messages. `None` means that it ended by
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<String>,
}

/// The run ended with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailed {
    /// Error that ended the run.
    pub error: RunError,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRetryScheduled {
    /// Number of the next attempt, from 2.
    pub attempt: u32,
    /// Delay before the next attempt.
    pub delay: Millis,
    /// Class of the failure that is the reason for the retry.
    pub class: FailureClass,
}

/// A retry of the run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRetried {
    /// Number of the attempt that started, from 2.
    pub attempt: u32,
}

/// The events before this one were copied from another run, and the run continues from there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunForked {
    /// Run whose events were copied.
    pub from: RunId,
    /// Sequence number of the last event that was copied.
    pub through: Seq,
    /// Reason for the copy.
    pub kind: ForkKind,
    /// Whether approvals in the copied events don't hold any more for what has not started. False
    /// in older journals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops_approvals: bool,
    /// Principal that forked the run. Empty in a retry, whose task names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What was changed in the copied conversation. `None` means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Box<ForkEdit>>,
    /// Whether the run is prepared again before its next turn, because its agent or its model differs
    /// from that of the other run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepares_again: bool,
    /// Whether the other run has used a sandbox, whose files this run does not have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resets_files: bool,
}

/// A change in the copied conversation of a fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkEdit {
    /// Replaces the message with this index in the conversation.
    Message { index: usize, text: String },
    /// Replaces the result of a tool call.
    Result { call: CallId, text: String },
}

/// Reason why a run starts with the events of another run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkKind {
    /// The other run failed, and this run retries it.
    #[default]
    Retry,
    /// A caller wants to go on from an earlier turn of the other run, perhaps with changes.
    Fork,
}
