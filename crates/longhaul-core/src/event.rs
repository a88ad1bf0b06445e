//! The facts a journal is made of, in the past tense. The list only grows.
//!
//! Never: an order. What must be done is a step, and steps are not stored.

pub mod codec;
pub mod entry;
pub mod environment;
pub mod gate;
pub mod run;
pub mod steer;
pub mod tool;
pub mod turn;

use crate::event::environment::{
    BudgetRaised, BudgetReached, BudgetSettled, BudgetWarned, ChainStepEvent, ChildEnded,
    ChildStarted, MemoryCompacted, ProgressReported, RuleAdded, RuleRevoked, SandboxEvent,
    TimerFired,
};
use crate::event::gate::{GateAnswer, GateExpired, GateNotice, GateRaised};
use crate::event::run::{
    RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunControlRequest, RunCreated, RunFailed,
    RunForked, RunOverdue, RunPrepared, RunRecovered, RunRetried, RunRetryScheduled, RunWaiting,
};
use crate::event::steer::{SteerDelivered, SteerDropped, SteerMessage, SteerWithdrawn};
use crate::event::tool::{
    ToolEnded, ToolInDoubt, ToolProgress, ToolStarted, ToolSurfaced, ToolVerified,
};
use crate::event::turn::{TurnCompleted, TurnFailed, TurnInterrupted, TurnStarted};

/// The format this build writes and reads. A worker claims only runs whose
/// journal has no higher one.
pub const EVENT_FORMAT: u32 = 1;

/// One line per kind: the variant, its data, its name in journals, its version, the
/// format that brought this version in, and what it does to a resting run if an outsider
/// may state it. `None`: only a driver, or whoever closes a run that nobody drives, may.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($data:ty) = $kind:literal v $v:literal format $format:literal outside $outside:expr;)*) => {
        /// A fact about a run.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $variant($data),)*
        }

        impl Event {
            /// Every kind with its version and the format that brought it in.
            pub const KINDS: &'static [(&'static str, u16, u32)] = &[$(($kind, $v, $format),)*];

            /// The kind's name in journals.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => $kind,)* }
            }

            /// The version of the kind's data.
            pub const fn version(&self) -> u16 {
                match self { $(Self::$variant(_) => $v,)* }
            }

            /// The format that brought this kind and version in.
            pub const fn format(&self) -> u32 {
                match self { $(Self::$variant(_) => $format,)* }
            }

            /// What this fact does to a resting run if an outsider may state it. These
            /// are accepted in every state that is not terminal.
            pub const fn from_outside(&self) -> Option<WakeTarget> {
                match self { $(Self::$variant(_) => $outside,)* }
            }

            /// The data as JSON.
            pub(crate) fn write_body(&self) -> Result<String, serde_json::Error> {
                match self { $(Self::$variant(data) => serde_json::to_string(data),)* }
            }

            /// The event of this kind from its data in the current version.
            pub(crate) fn read_body(kind: &str, body: &str) -> Option<Result<Self, serde_json::Error>> {
                match kind {
                    $($kind => Some(serde_json::from_str(body).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    /// Somebody submitted it.
    RunCreated(Box<RunCreated>) = "run.created" v 1 format 1 outside None;
    /// A worker took it.
    RunClaimed(RunClaimed) = "run.claimed" v 1 format 1 outside None;
    /// Its world was looked at and its prompt made.
    RunPrepared(Box<RunPrepared>) = "run.prepared" v 1 format 1 outside None;
    /// It let go of everything and rests.
    RunWaiting(RunWaiting) = "run.waiting" v 1 format 1 outside None;
    /// An attempt takes longer than it should.
    RunOverdue(RunOverdue) = "run.overdue" v 1 format 1 outside None;
    /// A new driver found what a dead one left.
    RunRecovered(RunRecovered) = "run.recovered" v 1 format 1 outside None;
    /// A person wants it to stand still.
    RunPauseRequested(RunControlRequest) = "run.pause_requested" v 1 format 1 outside Some(WakeTarget::Parked);
    /// It stands still.
    RunPaused(RunControlRequest) = "run.paused" v 1 format 1 outside None;
    /// A person wants it to go on.
    RunResumed(RunControlRequest) = "run.resumed" v 1 format 1 outside Some(WakeTarget::ParkedOrPaused);
    /// The agent can't go on, or a part is missing.
    RunBlocked(RunBlocked) = "run.blocked" v 1 format 1 outside None;
    /// A person wants it ended.
    RunCancelRequested(RunControlRequest) = "run.cancel_requested" v 1 format 1 outside Some(WakeTarget::ParkedOrPaused);
    /// It ended because somebody said so.
    RunCancelled(RunCancelled) = "run.cancelled" v 1 format 1 outside None;
    /// It ended with a result.
    RunCompleted(Box<RunCompleted>) = "run.completed" v 1 format 1 outside None;
    /// It ended without one.
    RunFailed(RunFailed) = "run.failed" v 1 format 1 outside None;
    /// It will be tried again.
    RunRetryScheduled(RunRetryScheduled) = "run.retry_scheduled" v 1 format 1 outside None;
    /// It is tried again.
    RunRetried(RunRetried) = "run.retried" v 1 format 1 outside None;
    /// It began as a copy of another run's beginning.
    RunForked(RunForked) = "run.forked" v 1 format 1 outside None;
    /// The model is about to be asked.
    TurnStarted(TurnStarted) = "turn.started" v 1 format 1 outside None;
    /// The model replied.
    TurnCompleted(Box<TurnCompleted>) = "turn.completed" v 1 format 1 outside None;
    /// The model did not reply.
    TurnFailed(TurnFailed) = "turn.failed" v 1 format 1 outside None;
    /// A person cut the model off.
    TurnInterrupted(TurnInterrupted) = "turn.interrupted" v 1 format 1 outside None;
    /// A call is about to begin.
    ToolStarted(ToolStarted) = "tool.started" v 1 format 1 outside None;
    /// A call says how far it is.
    ToolProgress(ToolProgress) = "tool.progress" v 1 format 1 outside None;
    /// A call has its result.
    ToolCompleted(ToolEnded) = "tool.completed" v 1 format 1 outside None;
    /// A call failed, was refused or never began: that is its result.
    ToolFailed(ToolEnded) = "tool.failed" v 1 format 1 outside None;
    /// We stopped a call ourselves and know that it stopped.
    ToolInterrupted(ToolEnded) = "tool.interrupted" v 1 format 1 outside None;
    /// A call was started and nobody recorded what came of it.
    ToolInDoubt(ToolInDoubt) = "tool.in_doubt" v 1 format 1 outside None;
    /// The tool looked whether a call in doubt has happened.
    ToolVerified(ToolVerified) = "tool.verified" v 1 format 1 outside None;
    /// A result came after all, from a driver that had lost the run.
    ToolSurfaced(ToolSurfaced) = "tool.surfaced" v 1 format 1 outside Some(WakeTarget::Parked);
    /// Somebody is asked.
    GateRaised(Box<GateRaised>) = "gate.raised" v 1 format 1 outside None;
    /// One of several said something.
    GateVoted(GateAnswer) = "gate.voted" v 1 format 1 outside Some(WakeTarget::None);
    /// The gate has its answer.
    GateAnswered(GateAnswer) = "gate.answered" v 1 format 1 outside Some(WakeTarget::Parked);
    /// Nobody answered in time.
    GateExpired(GateExpired) = "gate.expired" v 1 format 1 outside Some(WakeTarget::Parked);
    /// It is no longer asked.
    GateWithdrawn(GateNotice) = "gate.withdrawn" v 1 format 1 outside None;
    /// The people were reminded.
    GateReminded(GateNotice) = "gate.reminded" v 1 format 1 outside Some(WakeTarget::None);
    /// A message for the run was taken in.
    SteerQueued(SteerMessage) = "steer.queued" v 1 format 1 outside Some(WakeTarget::Parked);
    /// It was changed before it was read.
    SteerChanged(SteerMessage) = "steer.changed" v 1 format 1 outside Some(WakeTarget::Parked);
    /// It was taken back before it was read.
    SteerWithdrawn(SteerWithdrawn) = "steer.withdrawn" v 1 format 1 outside Some(WakeTarget::Parked);
    /// The model reads it.
    SteerDelivered(SteerDelivered) = "steer.delivered" v 1 format 1 outside None;
    /// It was never read, and why.
    SteerDropped(SteerDropped) = "steer.dropped" v 1 format 1 outside None;
    /// A time has come.
    TimerFired(TimerFired) = "timer.fired" v 1 format 1 outside Some(WakeTarget::Parked);
    /// A run was asked for.
    ChildStarted(ChildStarted) = "child.started" v 1 format 1 outside None;
    /// A run that was asked for has ended.
    ChildEnded(Box<ChildEnded>) = "child.ended" v 1 format 1 outside Some(WakeTarget::Parked);
    /// What was held for a lost call is settled.
    BudgetSettled(BudgetSettled) = "budget.settled" v 1 format 1 outside None;
    /// Most of a cap is used.
    BudgetWarned(BudgetWarned) = "budget.warned" v 1 format 1 outside None;
    /// A cap is met.
    BudgetReached(BudgetReached) = "budget.reached" v 1 format 1 outside None;
    /// A cap was raised.
    BudgetRaised(BudgetRaised) = "budget.raised" v 1 format 1 outside Some(WakeTarget::Parked);
    /// An approval is remembered.
    RuleAdded(RuleAdded) = "rule.added" v 1 format 1 outside Some(WakeTarget::None);
    /// It is forgotten.
    RuleRevoked(RuleRevoked) = "rule.revoked" v 1 format 1 outside Some(WakeTarget::None);
    /// A sandbox is being made.
    SandboxCreating(SandboxEvent) = "sandbox.creating" v 1 format 1 outside Some(WakeTarget::None);
    /// It is being started.
    SandboxStarting(SandboxEvent) = "sandbox.starting" v 1 format 1 outside Some(WakeTarget::None);
    /// It runs.
    SandboxRunning(SandboxEvent) = "sandbox.running" v 1 format 1 outside Some(WakeTarget::None);
    /// It is being stopped.
    SandboxStopping(SandboxEvent) = "sandbox.stopping" v 1 format 1 outside Some(WakeTarget::None);
    /// It is stopped and keeps its files.
    SandboxStopped(SandboxEvent) = "sandbox.stopped" v 1 format 1 outside Some(WakeTarget::None);
    /// It is gone.
    SandboxDeleted(SandboxEvent) = "sandbox.deleted" v 1 format 1 outside Some(WakeTarget::None);
    /// It can't be found any more.
    SandboxLost(SandboxEvent) = "sandbox.lost" v 1 format 1 outside Some(WakeTarget::None);
    /// The older part of the conversation was summed up.
    MemoryCompacted(Box<MemoryCompacted>) = "memory.compacted" v 1 format 1 outside None;
    /// A step of the chain began.
    ChainStepStarted(ChainStepEvent) = "chain.step_started" v 1 format 1 outside None;
    /// A step of the chain is done.
    ChainStepCompleted(ChainStepEvent) = "chain.step_completed" v 1 format 1 outside None;
    /// The agent says how far it is.
    ProgressReported(ProgressReported) = "progress.reported" v 1 format 1 outside None;
}

/// What an outsider's fact does to a run that rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeTarget {
    /// It stays parked.
    None,
    /// A parked run becomes ready.
    Parked,
    /// A parked or paused run becomes ready. A cancel does this too: a run that stands
    /// still would never end.
    ParkedOrPaused,
}

impl Event {
    /// Whether nothing follows this fact.
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::RunCompleted(_) | Self::RunFailed(_) | Self::RunCancelled(_))
    }
}
