//! The facts a journal is made of, in the past tense. The list only grows.
//!
//! Never: an order. What must be done is a step, and steps are not stored.

pub mod codec;
pub mod entry;
pub mod gate;
pub mod run;
pub mod steer;
pub mod tool;
pub mod turn;
pub mod world;

use crate::event::gate::{GateAnswer, GateClosed, GateExpired, GateRaised};
use crate::event::run::{
    RunAsked, RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunCreated, RunFailed, RunForked,
    RunOverdue, RunPerceived, RunRecovered, RunRetried, RunRetryScheduled, RunWaiting,
};
use crate::event::steer::{SteerDelivered, SteerDropped, SteerMessage, SteerWithdrawn};
use crate::event::tool::{
    ToolEnded, ToolInDoubt, ToolProgress, ToolStarted, ToolSurfaced, ToolVerified,
};
use crate::event::turn::{TurnCompleted, TurnFailed, TurnInterrupted, TurnStarted};
use crate::event::world::{
    BudgetRaised, BudgetReached, BudgetSettled, BudgetWarned, ChainStepped, ChildEnded,
    ChildStarted, MemoryCompacted, ProgressReported, RuleAdded, RuleRevoked, SandboxFact,
    TimerFired,
};

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
            pub const fn from_outside(&self) -> Option<Wakes> {
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
    RunPerceived(Box<RunPerceived>) = "run.perceived" v 1 format 1 outside None;
    /// It let go of everything and rests.
    RunWaiting(RunWaiting) = "run.waiting" v 1 format 1 outside None;
    /// An attempt takes longer than it should.
    RunOverdue(RunOverdue) = "run.overdue" v 1 format 1 outside None;
    /// A new driver found what a dead one left.
    RunRecovered(RunRecovered) = "run.recovered" v 1 format 1 outside None;
    /// A person wants it to stand still.
    RunPauseRequested(RunAsked) = "run.pause_requested" v 1 format 1 outside Some(Wakes::Parked);
    /// It stands still.
    RunPaused(RunAsked) = "run.paused" v 1 format 1 outside None;
    /// A person wants it to go on.
    RunResumed(RunAsked) = "run.resumed" v 1 format 1 outside Some(Wakes::Rested);
    /// The agent can't go on, or a part is missing.
    RunBlocked(RunBlocked) = "run.blocked" v 1 format 1 outside None;
    /// A person wants it ended.
    RunCancelRequested(RunAsked) = "run.cancel_requested" v 1 format 1 outside Some(Wakes::Rested);
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
    ToolSurfaced(ToolSurfaced) = "tool.surfaced" v 1 format 1 outside Some(Wakes::Parked);
    /// Somebody is asked.
    GateRaised(Box<GateRaised>) = "gate.raised" v 1 format 1 outside None;
    /// One of several said something.
    GateVoted(GateAnswer) = "gate.voted" v 1 format 1 outside Some(Wakes::No);
    /// The gate has its answer.
    GateAnswered(GateAnswer) = "gate.answered" v 1 format 1 outside Some(Wakes::Parked);
    /// Nobody answered in time.
    GateExpired(GateExpired) = "gate.expired" v 1 format 1 outside Some(Wakes::Parked);
    /// It is no longer asked.
    GateWithdrawn(GateClosed) = "gate.withdrawn" v 1 format 1 outside None;
    /// The people were reminded.
    GateReminded(GateClosed) = "gate.reminded" v 1 format 1 outside Some(Wakes::No);
    /// A message for the run was taken in.
    SteerQueued(SteerMessage) = "steer.queued" v 1 format 1 outside Some(Wakes::Parked);
    /// It was changed before it was read.
    SteerChanged(SteerMessage) = "steer.changed" v 1 format 1 outside Some(Wakes::Parked);
    /// It was taken back before it was read.
    SteerWithdrawn(SteerWithdrawn) = "steer.withdrawn" v 1 format 1 outside Some(Wakes::Parked);
    /// The model reads it.
    SteerDelivered(SteerDelivered) = "steer.delivered" v 1 format 1 outside None;
    /// It was never read, and why.
    SteerDropped(SteerDropped) = "steer.dropped" v 1 format 1 outside None;
    /// A time has come.
    TimerFired(TimerFired) = "timer.fired" v 1 format 1 outside Some(Wakes::Parked);
    /// A run was asked for.
    ChildStarted(ChildStarted) = "child.started" v 1 format 1 outside None;
    /// A run that was asked for has ended.
    ChildEnded(Box<ChildEnded>) = "child.ended" v 1 format 1 outside Some(Wakes::Parked);
    /// What was held for a lost call is settled.
    BudgetSettled(BudgetSettled) = "budget.settled" v 1 format 1 outside None;
    /// Most of a cap is used.
    BudgetWarned(BudgetWarned) = "budget.warned" v 1 format 1 outside None;
    /// A cap is met.
    BudgetReached(BudgetReached) = "budget.reached" v 1 format 1 outside None;
    /// A cap was raised.
    BudgetRaised(BudgetRaised) = "budget.raised" v 1 format 1 outside Some(Wakes::Parked);
    /// An approval is remembered.
    RuleAdded(RuleAdded) = "rule.added" v 1 format 1 outside Some(Wakes::No);
    /// It is forgotten.
    RuleRevoked(RuleRevoked) = "rule.revoked" v 1 format 1 outside Some(Wakes::No);
    /// A sandbox is being made.
    SandboxCreating(SandboxFact) = "sandbox.creating" v 1 format 1 outside Some(Wakes::No);
    /// It is being started.
    SandboxStarting(SandboxFact) = "sandbox.starting" v 1 format 1 outside Some(Wakes::No);
    /// It runs.
    SandboxRunning(SandboxFact) = "sandbox.running" v 1 format 1 outside Some(Wakes::No);
    /// It is being stopped.
    SandboxStopping(SandboxFact) = "sandbox.stopping" v 1 format 1 outside Some(Wakes::No);
    /// It is stopped and keeps its files.
    SandboxStopped(SandboxFact) = "sandbox.stopped" v 1 format 1 outside Some(Wakes::No);
    /// It is gone.
    SandboxDeleted(SandboxFact) = "sandbox.deleted" v 1 format 1 outside Some(Wakes::No);
    /// It can't be found any more.
    SandboxLost(SandboxFact) = "sandbox.lost" v 1 format 1 outside Some(Wakes::No);
    /// The older part of the conversation was summed up.
    MemoryCompacted(Box<MemoryCompacted>) = "memory.compacted" v 1 format 1 outside None;
    /// A step of the chain began.
    ChainStepStarted(ChainStepped) = "chain.step_started" v 1 format 1 outside None;
    /// A step of the chain is done.
    ChainStepCompleted(ChainStepped) = "chain.step_completed" v 1 format 1 outside None;
    /// The agent says how far it is.
    ProgressReported(ProgressReported) = "progress.reported" v 1 format 1 outside None;
}

/// What an outsider's fact does to a run that rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// It stays parked.
    No,
    /// A parked run becomes ready.
    Parked,
    /// A parked or paused run becomes ready. A cancel does this too: a run that stands
    /// still would never end.
    Rested,
}

impl Event {
    /// Whether nothing follows this fact.
    pub const fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::RunCompleted(_) | Self::RunFailed(_) | Self::RunCancelled(_)
        )
    }
}
