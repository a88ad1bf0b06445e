//! Journal events. Event kinds are only ever added, never removed.
//!
//! An event records something that has happened. What the run does next is derived from its events
//! and not stored.

pub mod codec;
pub mod entry;
pub mod environment;
pub mod gate;
pub mod run;
pub mod steer;
pub mod tool;
pub mod turn;

use crate::event::environment::{
    BudgetRaised, BudgetReached, BudgetSettled, BudgetWarned, ChainStepStarted, ChildEnded,
    ChildStarted, MemoryCompacted, OutcomeGraded, ProgressReported, RuleAdded, RuleRevoked,
    RuleUsed, SandboxCommandRun, SandboxEvent, TimerFired, WorkspaceSaved,
};
use crate::event::gate::{GateAnswer, GateExpired, GateNotice, GateRaised};
use crate::event::run::{
    RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunControlRequest, RunCreated, RunFailed,
    RunForked, RunOverdue, RunPrepared, RunRecovered, RunRetried, RunRetryScheduled, RunTimedOut,
    RunWaiting,
};
use crate::event::steer::{SteerDelivered, SteerDropped, SteerMessage, SteerWithdrawn};
use crate::event::tool::{
    LateToolResultEvent, ToolEnded, ToolInDoubt, ToolInputRequired, ToolKeyTaken, ToolPending,
    ToolProgress, ToolResumed, ToolStarted, ToolVerified,
};
use crate::event::turn::{TurnCompleted, TurnFailed, TurnInterrupted, TurnStarted};

/// Event format that this build writes and reads. A worker only claims runs whose journal contains
/// no event of a higher format.
pub const EVENT_FORMAT: u32 = 1;

/// Defines the event kinds, one per line: variant, data type, kind name in journals, version,
/// format that introduced this version, and whether a parked or a paused run becomes ready if an
/// outsider (a process that does not drive the run) appends the event. `None` means that an
/// outsider may not append it.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($data:ty) = $kind:literal v $v:literal format $format:literal outside $outside:expr;)*) => {
        /// An event in the journal of a run.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $variant($data),)*
        }

        impl Event {
            /// All event kinds, each with its version and the event format that introduced this
            /// version.
            pub const KINDS: &'static [(&'static str, u16, u32)] = &[$(($kind, $v, $format),)*];

            /// Returns the name of the event kind in journals, such as `run.created`.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind,)* }
            }

            /// Returns the version of the event's data.
            pub const fn version(&self) -> u16 {
                match self { $(Self::$variant(_) => $v,)* }
            }

            /// Returns the event format that introduced this event kind in this version.
            pub const fn format(&self) -> u32 {
                match self { $(Self::$variant(_) => $format,)* }
            }

            /// Returns whether a parked or a paused run becomes ready if an outsider (a process
            /// that does not drive the run) appends this event. `None` means that an outsider may
            /// not append it. Events of outsiders are accepted until the run has ended.
            pub fn runs_woken_by_outside_append(&self) -> Option<RunsToWake> {
                // A program raises such a gate from outside of the run.
                if let Self::GateRaised(data) = self
                    && data.gate.is_signal_gate_without_tool_call()
                {
                    return Some(RunsToWake::None);
                }
                match self { $(Self::$variant(_) => $outside,)* }
            }

            /// Serializes the event's data to JSON.
            pub(crate) fn encode_body(&self) -> Result<String, serde_json::Error> {
                match self { $(Self::$variant(data) => serde_json::to_string(data),)* }
            }

            /// Deserializes the data of an event of the given kind in its current version. Returns
            /// `None` if the kind is unknown.
            pub(crate) fn decode_body_if_known_kind(kind: &str, body: &str) -> Option<Result<Self, serde_json::Error>> {
                match kind {
                    $($kind => Some(serde_json::from_str(body).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    /// The run was submitted, and its task was recorded.
    RunCreated(Box<RunCreated>) = "run.created" v 1 format 1 outside None;
    /// A worker claimed the run.
    RunClaimed(RunClaimed) = "run.claimed" v 1 format 1 outside None;
    /// The prompt was rendered, with the state from the agent's context provider if it has one.
    RunPrepared(Box<RunPrepared>) = "run.prepared" v 1 format 1 outside None;
    /// The run was parked, i.e. it waits for something and no worker drives it.
    RunWaiting(RunWaiting) = "run.waiting" v 1 format 1 outside None;
    /// An attempt of the run has exceeded its soft timeout.
    RunOverdue(RunOverdue) = "run.overdue" v 1 format 1 outside None;
    /// An attempt of the run has reached its hard timeout.
    RunTimedOut(RunTimedOut) = "run.timed_out" v 1 format 1 outside None;
    /// A worker took over a run whose previous worker had died.
    RunRecovered(RunRecovered) = "run.recovered" v 1 format 1 outside None;
    /// A caller requested to pause the run.
    RunPauseRequested(RunControlRequest) = "run.pause_requested" v 1 format 1 outside Some(RunsToWake::Parked);
    /// The run was paused on request.
    RunPaused(RunControlRequest) = "run.paused" v 1 format 1 outside None;
    /// A caller resumed the run.
    RunResumed(RunControlRequest) = "run.resumed" v 1 format 1 outside Some(RunsToWake::ParkedOrPaused);
    /// The agent is blocked, or something that the agent needs is missing.
    RunBlocked(RunBlocked) = "run.blocked" v 1 format 1 outside None;
    /// A caller requested to cancel the run.
    RunCancelRequested(RunControlRequest) = "run.cancel_requested" v 1 format 1 outside Some(RunsToWake::ParkedOrPaused);
    /// The run ended because it was cancelled.
    RunCancelled(RunCancelled) = "run.cancelled" v 1 format 1 outside None;
    /// The run ended with a result.
    RunCompleted(Box<RunCompleted>) = "run.completed" v 1 format 1 outside None;
    /// The run ended with an error.
    RunFailed(RunFailed) = "run.failed" v 1 format 1 outside None;
    RunRetryScheduled(RunRetryScheduled) = "run.retry_scheduled" v 1 format 1 outside None;
    /// A retry of the run started.
    RunRetried(RunRetried) = "run.retried" v 1 format 1 outside None;
    /// The events before this one were copied from another run.
    RunForked(RunForked) = "run.forked" v 1 format 1 outside None;
    /// A model request is about to be sent.
    TurnStarted(TurnStarted) = "turn.started" v 1 format 1 outside None;
    /// The model replied to the request of a turn.
    TurnCompleted(Box<TurnCompleted>) = "turn.completed" v 1 format 1 outside None;
    /// The model request failed.
    TurnFailed(TurnFailed) = "turn.failed" v 1 format 1 outside None;
    /// The model request was interrupted by a person.
    TurnInterrupted(TurnInterrupted) = "turn.interrupted" v 1 format 1 outside None;
    /// A tool call is about to start.
    ToolStarted(ToolStarted) = "tool.started" v 1 format 1 outside None;
    /// A tool call reported progress.
    ToolProgress(ToolProgress) = "tool.progress" v 1 format 1 outside None;
    /// A tool call was not started, because another call has claimed its effect key (the key of an
    /// effect that happens at most once over all runs).
    ToolKeyTaken(ToolKeyTaken) = "tool.key_taken" v 1 format 1 outside None;
    /// A tool needs a person's answer before it continues a call.
    ToolInputRequired(Box<ToolInputRequired>) = "tool.input_required" v 1 format 1 outside None;
    /// A tool has no result of a call yet and is asked again later.
    ToolPending(Box<ToolPending>) = "tool.pending" v 1 format 1 outside None;
    /// A suspended tool call is about to be continued.
    ToolResumed(ToolResumed) = "tool.resumed" v 1 format 1 outside None;
    /// A tool call completed with a result.
    ToolCompleted(ToolEnded) = "tool.completed" v 1 format 1 outside None;
    /// A tool call failed, was denied or was never started. The failure is its result.
    ToolFailed(ToolEnded) = "tool.failed" v 1 format 1 outside None;
    /// The runtime cancelled a tool call and knows that it stopped.
    ToolInterrupted(ToolEnded) = "tool.interrupted" v 1 format 1 outside None;
    /// A tool call is in doubt: it was started, but its outcome was not recorded.
    ToolInDoubt(ToolInDoubt) = "tool.in_doubt" v 1 format 1 outside None;
    /// The tool checked whether a call in doubt (one without a recorded outcome) has taken effect.
    ToolVerified(ToolVerified) = "tool.verified" v 1 format 1 outside None;
    /// A tool result arrived late, from a worker that had already lost its claim on the run.
    ToolSurfaced(LateToolResultEvent) = "tool.surfaced" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A gate was raised: a person or program is asked for an approval or an answer.
    GateRaised(Box<GateRaised>) = "gate.raised" v 1 format 1 outside None;
    /// A gate that needs several approvals received one of them.
    GateVoted(GateAnswer) = "gate.voted" v 1 format 1 outside Some(RunsToWake::None);
    /// A gate was closed by an answer.
    GateAnswered(GateAnswer) = "gate.answered" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A gate's timeout passed without an answer.
    GateExpired(GateExpired) = "gate.expired" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A gate was closed because its answer is no longer needed.
    GateWithdrawn(GateNotice) = "gate.withdrawn" v 1 format 1 outside None;
    /// The approvers of a gate were reminded.
    GateReminded(GateNotice) = "gate.reminded" v 1 format 1 outside Some(RunsToWake::None);
    /// A message for the run was queued.
    SteerQueued(SteerMessage) = "steer.queued" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A queued message was edited before its delivery.
    SteerChanged(SteerMessage) = "steer.changed" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A queued message was withdrawn before its delivery.
    SteerWithdrawn(SteerWithdrawn) = "steer.withdrawn" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A queued message was delivered to the model.
    SteerDelivered(SteerDelivered) = "steer.delivered" v 1 format 1 outside None;
    /// A queued message was discarded without being delivered.
    SteerDropped(SteerDropped) = "steer.dropped" v 1 format 1 outside None;
    TimerFired(TimerFired) = "timer.fired" v 1 format 1 outside Some(RunsToWake::Parked);
    /// A child run was started.
    ChildStarted(ChildStarted) = "child.started" v 1 format 1 outside None;
    ChildEnded(Box<ChildEnded>) = "child.ended" v 1 format 1 outside Some(RunsToWake::Parked);
    /// The result of the run was graded against the rubric of its agent.
    OutcomeGraded(OutcomeGraded) = "outcome.graded" v 1 format 1 outside None;
    /// The budget hold (reserved amount) of a model request that never completed was released, and
    /// the assumed usage was charged.
    BudgetSettled(BudgetSettled) = "budget.settled" v 1 format 1 outside None;
    /// Most of a budget cap is used, so the agent is told to finish.
    BudgetWarned(BudgetWarned) = "budget.warned" v 1 format 1 outside None;
    /// A budget cap was reached.
    BudgetReached(BudgetReached) = "budget.reached" v 1 format 1 outside None;
    /// Budget caps were raised.
    BudgetRaised(BudgetRaised) = "budget.raised" v 1 format 1 outside Some(RunsToWake::Parked);
    /// An approval was remembered, so similar calls need no new approval.
    RuleAdded(RuleAdded) = "rule.added" v 1 format 1 outside Some(RunsToWake::None);
    /// A tool call needed no new approval, because a remembered approval covers it.
    RuleUsed(RuleUsed) = "rule.used" v 1 format 1 outside None;
    /// A remembered approval was revoked.
    RuleRevoked(RuleRevoked) = "rule.revoked" v 1 format 1 outside Some(RunsToWake::None);
    SandboxCreating(SandboxEvent) = "sandbox.creating" v 1 format 1 outside Some(RunsToWake::None);
    SandboxStarting(SandboxEvent) = "sandbox.starting" v 1 format 1 outside Some(RunsToWake::None);
    SandboxRunning(SandboxEvent) = "sandbox.running" v 1 format 1 outside Some(RunsToWake::None);
    SandboxStopping(SandboxEvent) = "sandbox.stopping" v 1 format 1 outside Some(RunsToWake::None);
    /// A sandbox was stopped; its files are kept.
    SandboxStopped(SandboxEvent) = "sandbox.stopped" v 1 format 1 outside Some(RunsToWake::None);
    SandboxDeleted(SandboxEvent) = "sandbox.deleted" v 1 format 1 outside Some(RunsToWake::None);
    /// The provider can't find a sandbox any more.
    SandboxLost(SandboxEvent) = "sandbox.lost" v 1 format 1 outside Some(RunsToWake::None);
    /// A person ran a command in a sandbox.
    SandboxCommandRun(SandboxCommandRun) = "sandbox.command_run" v 1 format 1 outside Some(RunsToWake::None);
    /// The files of the sandbox were saved after a turn.
    WorkspaceSaved(WorkspaceSaved) = "workspace.saved" v 1 format 1 outside None;
    /// The older part of the conversation was replaced by a summary.
    MemoryCompacted(Box<MemoryCompacted>) = "memory.compacted" v 1 format 1 outside None;
    /// The next step of a chain started.
    ChainStepStarted(ChainStepStarted) = "chain.step_started" v 1 format 1 outside None;
    /// The agent reported its progress.
    ProgressReported(ProgressReported) = "progress.reported" v 1 format 1 outside None;
}

/// Whether a parked or a paused run becomes ready when an outsider, i.e. a process that does not
/// drive the run, appends an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsToWake {
    /// The event wakes no run: a parked or paused run stays as it is.
    None,
    /// A parked run becomes ready. A paused run stays paused.
    Parked,
    /// A parked or paused run becomes ready. Cancel requests do this too, because a paused run
    /// would otherwise never end.
    ParkedOrPaused,
}

impl Event {
    /// Returns whether the event ends the run.
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::RunCompleted(_) | Self::RunFailed(_) | Self::RunCancelled(_))
    }
}
