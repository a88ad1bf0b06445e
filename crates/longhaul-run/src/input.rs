//! All inputs of a run: results of its work and commands from outside.
//!
//! If an append fails because another writer has appended to the journal, the same input is decided
//! again. The model and the tools are not called again for it.

use std::sync::Arc;

use longhaul_core::change::{Blob, NewRun};
use longhaul_core::event::environment::{MemoryCompacted, SandboxEvent, SavedFiles};
use longhaul_core::event::run::{RunControlRequest, RunPrepared};
use longhaul_core::event::tool::{ToolOutput, ToolProgress, ToolVerified};
use longhaul_core::event::turn::{OutputCheckResult, ToolCallClassification};
use longhaul_core::failure::Failure;
use longhaul_core::id::CallId;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::port::sandbox::{Isolation, SandboxError};
use longhaul_core::port::tool::SuspendedToolCall;
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};

use crate::commands::RunCommand;

pub use crate::decision::PerceptionRefresh;

/// An input of a run: something that happened and that the run must react to.
#[derive(Debug, Clone)]
pub enum RunInput {
    /// Nothing new has happened, but events that need no external result may be due and are
    /// recorded.
    Advance,
    /// The run was prepared: the perception (the context provider's report on the outside world)
    /// was fetched and the prompt built. The blobs are the contents that the event refers to by
    /// hash: prompt, tool list and text of the perception.
    Prepared(Box<RunPrepared>, Vec<Blob>),
    /// The perception (the context provider's report on the outside world) was fetched again before
    /// a turn.
    PerceptionRefreshed(Box<PerceptionRefresh>),
    /// A timeout of the attempt has passed during the work in progress.
    TimeoutPassed {
        /// Duration of the work in progress, which no event has recorded yet.
        elapsed: Millis,
    },
    /// A running tool call has reported its progress.
    Progress(ToolProgress),
    /// The model has replied to a call.
    ModelReplied(Box<ModelReply>),
    /// A model call has failed.
    ModelFailed {
        /// Failure of the model call.
        failure: Failure,
        /// Cost of the failed model call. `None` means that the cost is computed from the price
        /// list.
        cost: Option<MicroUsd>,
        /// Duration of the failed model call.
        active: Millis,
    },
    /// A message from a person has interrupted the model's reply.
    ModelInterrupted(InterruptedReply),
    /// The model has summarized the older part of the conversation.
    Compacted(Box<MemoryCompacted>),
    /// Tool calls have ended or were suspended by their tools.
    ToolsDone(Vec<ToolCallResult>),
    /// A tool has checked whether a call in doubt (outcome unknown) has taken effect. The blobs are
    /// the contents that the outcome refers to by hash: the full output and its images.
    Verified(ToolVerified, Vec<Blob>),
    /// The child runs that tool calls ask for were prepared, or can't start.
    ChildrenPrepared(Vec<PreparedChildRun>),
    /// The run that grades the result was prepared, or can't start for this reason.
    GradingPrepared(Result<Box<NewChildRun>, String>),
    /// A driver (the async task of a worker that executes the run) starts. If it dies after this
    /// input is recorded, that counts as a new crash.
    Recover,
    /// The sandbox of the run must be created or started.
    OpenSandbox(Box<SandboxPlan>),
    /// The engine has opened the sandbox of the run, has failed to, or has found out that it is
    /// gone.
    SandboxChanged(SandboxChange),
    /// The engine has saved the files of the sandbox, or could not. The blobs are the contents that
    /// a snapshot refers to by hash: its pack and its diff.
    WorkspaceSaved(SavedFiles, Vec<Blob>),
    /// Drivers (async tasks that executed the run) have died too often without progress in between.
    CrashLoop,
    /// A dependency of the run is missing. The message says what to configure.
    MissingDependency(String),
    /// The run can never continue, because the agent version that it started with can't be used. The
    /// message says what to do instead.
    Unrunnable(String),
    /// The worker is shutting down and releases the run.
    Release,
    /// Immediately cancels a run that is not claimed by a worker now, at this request.
    CancelNow(RunControlRequest),
    /// Immediately pauses a run that is not claimed by a worker now.
    PauseNow {
        /// Principal that pauses the run.
        by: String,
    },
    /// Ends a run that is parked and open for messages, with its result.
    CloseNow {
        /// Principal that closes the run.
        by: String,
    },
    /// A command from outside the run, such as an answer or a message.
    Command(RunCommand),
}

/// Sandbox that a run opens.
#[derive(Debug, Clone)]
pub struct SandboxPlan {
    /// Facts about a new sandbox, without its id.
    pub event: SandboxEvent,
    /// Maximum number of sandboxes that may run concurrently at the provider.
    pub capacity: u32,
}

/// What the engine has found out about the sandbox of a run.
#[derive(Debug, Clone)]
pub enum SandboxChange {
    /// The sandbox runs, and the engine is connected to it.
    Running {
        /// Identifier that the provider uses for the sandbox.
        handle: String,
        isolation: Isolation,
    },
    /// The sandbox is stopped.
    Stopped,
    /// The sandbox could not be opened or is lost.
    Failed(SandboxError),
}

/// A child run that a tool call asks for, ready to be created. The error is a message for the model.
#[derive(Debug, Clone)]
pub struct PreparedChildRun {
    /// Id of the tool call that asks for the child run.
    pub call: CallId,
    /// The new child run, or the reason why it can't start.
    pub child: Result<Box<NewChildRun>, String>,
}

#[derive(Debug, Clone)]
pub struct NewChildRun {
    pub run: NewRun,
    /// Definition of the child's agent.
    pub definition: Blob,
    /// Whether the parent continues while the child runs.
    pub background: bool,
}

/// A model reply that was interrupted by a message from a person.
#[derive(Debug, Clone)]
pub struct InterruptedReply {
    /// Text of the reply that was received before the interruption.
    pub text: Arc<str>,
    /// Tokens used by the interrupted model call.
    pub usage: Usage,
    /// Cost of the interrupted model call. `None` means that the provider did not report it.
    pub cost: Option<MicroUsd>,
    /// Duration of the interrupted model call.
    pub active: Millis,
}

/// A model reply, with what the engine has determined about its tool calls.
#[derive(Debug, Clone)]
pub struct ModelReply {
    /// Response of the model provider.
    pub response: ModelResponse,
    /// What the engine has determined about each tool call of the reply, such as its effect class.
    /// In the model's order.
    pub calls: Vec<ToolCallClassification>,
    /// Result of checking the final output against the run's output schema. The output is the
    /// reply's text or the input of a valid `finish` call. `None` means that nothing was checked.
    pub output_check: Option<OutputCheckResult>,
    /// Duration of the model call.
    pub active: Millis,
}

/// Result of one tool call, as reported by the engine.
#[derive(Debug, Clone)]
pub struct ToolCallResult {
    pub call: CallId,
    /// How the tool call ended, or that its tool has suspended it.
    pub status: ToolCallStatus,
    pub output: ToolOutput,
    /// Time that the worker spent on the tool call. Calls that ran in parallel share their time.
    pub active: Millis,
    /// Contents that the result refers to by hash: the full output and its images.
    pub blobs: Vec<Blob>,
}

/// Way in which a tool call ended, or that its tool has suspended it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCallStatus {
    /// The tool call succeeded.
    Completed,
    /// The tool call failed. The model reads the error.
    Failed,
    /// The tool call was cancelled and is known to have stopped.
    Interrupted,
    /// The tool call was abandoned, and it is unknown whether it has taken effect.
    Unknown,
    /// The tool has suspended the call, which has no result yet.
    Suspended(Box<SuspendedToolCall>),
}
