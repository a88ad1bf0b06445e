//! The reasons why a store refuses to append events, because of a row that would change with them.

use crate::id::LaneKey;
use crate::policy::budget::BudgetAccount;
use crate::policy::effect_key::ClaimedEffectKey;
use crate::policy::gate::{GateStatus, RecordedAnswer};
use crate::policy::spend_cap::CapRefusal;
use crate::port::queue::BusyLane;

/// Reason why the store refused a row change of an append.
#[derive(Debug, Clone, PartialEq)]
pub enum AppendRefusalReason {
    /// The budget of the tree of runs does not cover the amount to be held (reserved), or the model
    /// must first be warned that little of the budget is left. Contains the budget account of the
    /// tree.
    OverBudget(BudgetAccount),
    /// A spend cap does not cover the amount to be held (reserved). Contains what is left of the
    /// cap.
    OverCap(Box<CapRefusal>),
    /// The window of a spend cap does not contain the current time of the store's clock.
    CapWindowPassed,
    /// Another tool call has claimed the effect key (the key of an effect that happens at most
    /// once).
    KeyTaken(ClaimedEffectKey),
    /// The tool call whose outcome the run wants to wait for does not hold its effect key any more.
    KeyNotHeld,
    /// The maximum number of sandboxes of the provider is already running.
    NoSlot,
    /// The lane contains the maximum number of runs.
    LaneFull(LaneKey),
    /// The lane is busy, and the entry policy of the new run does not let it queue in the lane.
    LaneBusy(BusyLane),
    /// The tree of the new run already has the maximum number of open runs below its root.
    TreeFull,
    /// The idempotency key was already used to submit a task.
    SubmitKeyUsed,
    /// The gate is closed. Contains the gate's status and the answer that closed the gate, if there
    /// is one.
    GateClosed(GateStatus, Option<Box<RecordedAnswer>>),
    /// The gate has received another answer since it was read.
    GateAnswersChanged,
    GateNotFound,
    /// A gate with this id exists already.
    GateExists,
    /// The queued message was already delivered, dropped or withdrawn.
    SteerSettled,
    /// The run's message queue is full.
    SteersFull,
    /// An active remembered approval with the same scope and pattern exists already.
    RuleExists,
    /// The store contains the maximum number of active remembered approvals that apply to more than
    /// one run.
    RulesFull,
    /// The remembered approval was already revoked, or does not exist.
    RuleInactive,
    /// The timer was already marked as fired.
    TimerConsumed,
    /// An outsider, i.e. a process that does not drive the run, may not append this event. Contains
    /// the type of the event.
    NotAllowedForOutsider(&'static str),
    /// Another attempt of the idempotent request has already taken effect, or the request is no
    /// longer in progress.
    RequestAlreadyApplied,
}
