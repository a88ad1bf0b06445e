//! Row changes that are committed in the same transaction as journal events.
//!
//! The state machine decides which changes go with an event; a store only applies them.

mod sandbox;
mod steer;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::change::sandbox::{SandboxFilter, SandboxRow, SandboxSlot, SlotQueueLength};
pub use crate::change::steer::{STEERS_MAX, SteerRow, SteerStatus, SteerUpdate};
use crate::checkpoint::RunCheckpoint;
use crate::event::Event;
use crate::event::environment::ProgressReported;
use crate::id::{BatchId, CallId, GateId, RuleId, RunId, SandboxId, Seq, ThreadKey, TimerId};
use crate::message::Message;
use crate::policy::budget::BudgetRaise;
pub use crate::policy::budget::{BudgetHold, BudgetHoldSettlement};
use crate::policy::effect_key::EffectKeyChange;
use crate::policy::gate::{Answer, GateSpec};
use crate::policy::rule::RememberedApprovalRow;
use crate::policy::spend_cap::{CapReservation, CapSettlement, CapWaitRow};
pub use crate::port::sandbox::SandboxState;
use crate::raw::{BlobRef, Hash};
use crate::request::{IdempotencyKey, IdempotencyRecord};
use crate::task::TaskSpec;
use crate::time::{Millis, Timestamp};
use crate::usage::{BudgetAmount, MicroUsd, Usage};
use crate::wait::WaitKind;

/// Events for a journal and the row changes that belong to them. A store writes all or none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JournalBatch {
    /// Events to append to the journal, in order.
    pub events: Vec<Event>,
    /// Row changes to apply in the same transaction as the events.
    pub changes: Vec<RowChange>,
}

impl JournalBatch {
    /// Returns whether the batch contains neither events nor row changes.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.changes.is_empty()
    }

    /// Returns whether the batch only marks timers as fired. Such a batch can be written even if
    /// the run of the timers was deleted.
    pub fn only_marks_timers_as_fired(&self) -> bool {
        let is_consumed_timer =
            |change: &RowChange| matches!(change, RowChange::SetTimer(TimerUpdate::Consume(_)));
        self.events.is_empty() && !self.is_empty() && self.changes.iter().all(is_consumed_timer)
    }

    /// Returns the progress that the last of the events reports. `None` if none does.
    pub fn last_progress(&self) -> Option<&ProgressReported> {
        let mut events = self.events.iter().rev();
        events.find_map(|event| {
            if let Event::ProgressReported(reported) = event { Some(reported) } else { None }
        })
    }

    /// Returns the highest event format number among the events of the batch, or 0 without events.
    pub fn highest_event_format_number(&self) -> u32 {
        self.events.iter().map(Event::format).max().unwrap_or(0)
    }
}

/// One change to the rows that a store keeps besides the journals.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// Creates a run with the first events of its journal.
    CreateRun(Box<NewRun>),
    /// Creates the run for the next step of a chain, in the lane and budget of the chain's root
    /// run.
    CreateStep(Box<NewRun>),
    /// Changes how the run is scheduled: it is parked (waits without a worker), paused, released by
    /// its worker, or ended.
    UpdateScheduling(RunSchedulingUpdate),
    /// Raises a gate, i.e. a question or approval that waits for a person. Refused if a gate with
    /// this id exists.
    RaiseGate(Box<GateSpec>),
    /// Adds an answer to an open gate, or closes the gate. Refused if the gate is not open.
    UpdateGate(GateUpdate),
    /// Sets a timer, marks a due timer as fired, or deletes timers that would approve gates.
    SetTimer(TimerUpdate),
    /// Queues a person's message for the run. Refused if the message queue is full.
    QueueSteer(SteerRow),
    /// Edits a queued message, or records that it was delivered, dropped or withdrawn. Refused if
    /// the message was already delivered, dropped or withdrawn.
    UpdateSteer(SteerUpdate),
    /// Acquires one of the provider's slots for running sandboxes. Refused if no slot is free.
    AcquireSlot(SandboxSlot),
    /// Releases the provider's slot that this sandbox occupies.
    ReleaseSlot(SandboxId),
    /// Queues the run until the sandbox provider with this name can run one more sandbox.
    QueueForSlot(String),
    /// Holds (reserves) the worst-case cost of a model request. Refused if the budget does not
    /// cover the cost in addition to what earlier waiting runs need, or if the model must be warned
    /// first that little of the budget is left.
    Hold(BudgetHold),
    /// Releases a budget hold (reserved amount) and charges the part that was used or may have been
    /// used. Runs that wait for the released amount are woken, in the order in which they began to
    /// wait.
    Settle(BudgetHoldSettlement),
    /// Queues the parked run until model requests of other runs have released enough of the budget
    /// for this amount. Follows the change that parks the run. A run that is queued already keeps
    /// its place, and leaves the queue when it holds its amount, ends, pauses or waits for something
    /// else.
    WaitForHolds(BudgetAmount),
    /// Wakes the parked run at once if the caps of its budget differ from these, i.e. were raised
    /// since the store refused to reserve an amount. Follows the change that parks the run.
    WaitForHigherCaps {
        /// Cap on money that the decision to park was based on. `None` means no cap.
        micro_usd: Option<MicroUsd>,
        /// Cap on tokens that the decision to park was based on. `None` means no cap.
        tokens: Option<u64>,
    },
    /// Holds (reserves) amounts within spend caps. Refused if one of them does not fit, or if the
    /// window of a cap has ended.
    HoldCaps(Vec<CapReservation>),
    /// Releases amounts held (reserved) within spend caps and counts what was used, or what counts
    /// as used because the usage is unknown. Wakes runs that wait for the released amounts.
    SettleCaps(Vec<CapSettlement>),
    /// Queues the run at a spend cap until the cap covers the amount that the run needs.
    WaitAtCap(CapWaitRow),
    /// Adds tokens, cost, turns and active time to the run's totals.
    AddUsage(UsageRow),
    /// Queues a message for delivery to an external endpoint.
    AddOutbox(OutboxRow),
    /// Appends messages to a thread, i.e. a conversation that several runs share.
    AppendThread(NewThreadMessages),
    /// Stores a blob under the hash of its content.
    PutBlob(Blob),
    /// Creates or updates a sandbox row.
    SetSandbox(SandboxRow),
    /// Stores an agent definition under its hash.
    PutDefinition(Blob),
    /// Adds a remembered approval. Refused if an active one has the same scope and pattern, or if
    /// the store has the maximum number of active approvals that apply to more than one run.
    AddRule(Box<RememberedApprovalRow>),
    /// Counts one more tool call that needed no new approval, because this remembered approval
    /// covers it.
    UseRule(RuleId),
    /// Revokes a remembered approval. Refused if it was revoked before.
    RevokeRule {
        /// Id of the remembered approval.
        rule: RuleId,
        /// Principal that revokes the approval.
        by: String,
    },
    /// Claims an effect key (a key of an effect that happens at most once over all runs) for a tool
    /// call, records the outcome of the call under the key, frees the key, or makes the run wait
    /// for it.
    UpdateKey(EffectKeyChange),
    /// Raises those caps of the run's budget for which a higher value is given, and wakes the runs
    /// that wait for a higher cap. Has no effect for a child run, whose own caps are only in its
    /// journal.
    RaiseBudget(BudgetRaise),
    /// Like `RaiseBudget`, but a raise of a child run raises the caps of its whole tree of runs.
    RaiseTreeBudget(BudgetRaise),
    /// Marks the request with this idempotency key as applied by this batch. Refused if the request
    /// has already been applied or is not in progress: when an attempt at the request outlives its
    /// lease and is replaced by another attempt, only one of the two may take effect.
    MarkRequestApplied(IdempotencyKey),
    /// Saves the idempotency key of a task that is added to this run instead of becoming a run of
    /// its own. Refused if the key was already used.
    SaveSubmitKey(IdempotencyRecord),
    /// Stores a checkpoint of the run in place of the previous one.
    SaveCheckpoint(RunCheckpoint),
}

/// A run to be created in the store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewRun {
    pub id: RunId,
    /// Task of the run. The store derives the columns of the run's row from it.
    pub task: TaskSpec,
    /// First events of the run's journal. The first one is `run.created`.
    pub events: Vec<Event>,
    /// Events copied from another run, which are placed after `run.created` and before the other
    /// events. `None` means that nothing is copied.
    pub copied_journal: Option<JournalPrefixCopy>,
    /// Messages that are queued for the run. Their events are among `events`.
    pub steers: Vec<SteerRow>,
    /// Maximum number of runs in the run's lane, including this run.
    pub lane_depth_max: u32,
    /// Condition under which the run enters its lane.
    pub lane_entry: LaneEntryPolicy,
    /// Spend caps in which the new run is counted, each with the amount to count. The run is
    /// refused if one of them is reached.
    pub caps: Vec<CapReservation>,
}

impl NewRun {
    /// Returns the sequence number of the last event of the new journal.
    pub fn last_seq(&self) -> Seq {
        let copied_entries =
            self.copied_journal.map_or(0, |journal| journal.through.0.saturating_sub(1));
        Seq(copied_entries.saturating_add(self.events.len() as u64))
    }
}

/// Start of another run's journal that is copied to a new run, without `run.created`. The events
/// keep their sequence numbers, times and epochs. The new run refers to all blobs of the other run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPrefixCopy {
    /// Run whose events are copied.
    pub from: RunId,
    /// Sequence number of the last event that is copied.
    pub through: Seq,
}

/// Condition under which a new run enters its lane, and what happens with the runs in the lane.
/// Ignored for a run that has a start time or waits for the previous run of its batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LaneEntryPolicy {
    /// The run enters at the end of the lane.
    #[default]
    Enqueue,
    /// The run enters only if no run is in the lane.
    IfEmpty,
    /// The run enters only if the lane is empty, or if a worker has already claimed the run that
    /// entered the lane last.
    IfNoneWaits {
        /// How long the run waits, after its task or the last message that was added to it, before
        /// it starts.
        window: Millis,
    },
    /// The run enters at the end of the lane, and every other run in the lane gets a timer that
    /// cancels it.
    Interrupt,
}

/// Default maximum number of runs in one lane.
pub const LANE_DEPTH_MAX: u32 = 10_000;

/// Update of a run's scheduling state: parked (waits without a worker), paused, released by its
/// worker, or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunSchedulingUpdate {
    /// The run is parked: it waits until an event wakes it.
    Park {
        /// Reason for parking the run, as shown in run lists.
        reason: &'static str,
        /// Whether the status of the run is `blocked` instead of `waiting`.
        blocked: bool,
        /// Whether the run releases its lane while it is parked.
        release_lane: bool,
    },
    /// A person paused the run. Only a resume makes it ready again.
    Pause,
    /// The worker gives up its claim without a crash, so any worker may claim the run.
    Release,
    /// The run has ended, so no worker may claim it any more.
    End {
        /// Final status of the run: `completed`, `failed` or `cancelled`.
        status: crate::status::Status,
        /// Error code of the run, if it failed.
        code: Option<String>,
        /// Whether the run gives up the lane of its root run, so that the next run in the lane may
        /// start when no other run of the tree (the root and its descendants) is open.
        releases_lane: bool,
    },
}

impl RunSchedulingUpdate {
    /// Returns whether a run that waits for budget keeps its place in the queue of the budget
    /// account after this change.
    pub fn keeps_run_in_budget_queue(&self) -> bool {
        match self {
            Self::Park { reason, .. } => *reason == WaitKind::BudgetHeld.code(),
            Self::Release => true,
            Self::Pause | Self::End { .. } => false,
        }
    }
}

/// Update of a gate: one more answer, or the end of the gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateUpdate {
    pub gate: GateId,
    /// Number of recorded answers on which the update is based. The store refuses the update if the
    /// gate has another number. `None` means any number.
    pub seen_answers: Option<usize>,
    /// State change of the gate, such as an answer or the end of the gate.
    pub transition: GateTransition,
}

/// State change of an open gate: one more answer, or the end of the gate.
#[derive(Debug, Clone, PartialEq)]
pub enum GateTransition {
    /// The gate received one more answer and stays open, because it needs further approvals.
    Voted(Answer),
    /// The gate was closed by this answer.
    Answered(Answer),
    /// The gate was closed by a person's message that the run has read. This is valid even after
    /// the deadline, because the message was queued while the gate was open.
    AnsweredByMessage(Answer),
    /// The gate's deadline passed without an answer.
    Expired,
    /// The gate was closed because its answer is no longer needed.
    Withdrawn,
}

/// Update of timers: sets one, marks one as fired, or deletes one or those that approve gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimerUpdate {
    /// Sets a timer for this run or for another run.
    Arm {
        timer: TimerId,
        /// Run that is notified when the timer fires.
        run: RunId,
        due: TimerDueTime,
        /// Purpose of the timer, which determines what happens when it fires.
        kind: TimerKind,
    },
    /// Marks the timer with this id as fired. Refused if the timer was already marked as fired.
    Consume(TimerId),
    /// Deletes the timer of a wait that was cut short. Does nothing if the timer has fired.
    Cancel(TimerId),
    /// Makes the open gates of this run wait for a person: deletes the timers with which they approve
    /// themselves, and `auto_approve` in their rows.
    StopAutoApproval(RunId),
}

/// Due time of a timer. The store adds relative delays to the time of its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerDueTime {
    /// The timer is due immediately.
    Now,
    /// The timer is due after this delay, measured by the store's clock.
    After(Millis),
    /// The timer is due at this time of the store's clock.
    At(Timestamp),
}

/// Purpose of a timer, which determines what happens when it fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerKind {
    /// The time has come at which the wait of a parked run ends.
    Wake,
    /// The delay of this length is over for which a parked run waits. The length is kept because
    /// the due time is wrong if the clock is set back during the delay.
    Delay(Millis),
    /// The run's scheduled start time has been reached.
    Start,
    /// The previous run of this batch has completed, so the run may start.
    BatchNext(BatchId),
    /// This batch was stopped, so the run is no longer needed.
    BatchStopped(BatchId),
    /// The deadline of this gate has passed.
    GateDeadline(GateId),
    /// A reminder for this open gate is due.
    GateRemind(GateId),
    /// The delay has passed after which this open gate is approved without a person.
    GateAutoApprove(GateId),
    /// Another person or group must be notified about this gate, which nobody has answered.
    GateEscalate {
        /// Gate that nobody has answered.
        gate: GateId,
        /// Index of that person or group in the escalation list of the gate, from 0.
        step: usize,
    },
    ChildEnded(RunId),
    /// This parent run was cancelled or has failed.
    ParentEnded(RunId),
    /// The verdict of the run (a grading run) is no longer needed, because this parent run works on
    /// another result.
    VerdictUnneeded(RunId),
    /// This newer run of the same lane interrupts the run.
    LaneInterrupted(RunId),
}

impl TimerKind {
    /// Returns the gate that the timer belongs to. `None` means that the timer belongs to no gate.
    pub const fn gate(&self) -> Option<GateId> {
        match self {
            Self::GateDeadline(gate)
            | Self::GateRemind(gate)
            | Self::GateAutoApprove(gate)
            | Self::GateEscalate { gate, .. } => Some(*gate),
            Self::Wake
            | Self::Delay(_)
            | Self::Start
            | Self::BatchNext(_)
            | Self::BatchStopped(_)
            | Self::ChildEnded(_)
            | Self::ParentEnded(_)
            | Self::VerdictUnneeded(_)
            | Self::LaneInterrupted(_) => None,
        }
    }
}

/// Usage that is added to a run's totals after a model or tool call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// Model that was used. Empty if only active time is recorded.
    pub model: String,
    /// Tokens used by the model call. Zero if only active time is recorded.
    pub usage: Usage,
    /// Cost of the model call. `None` means that the cost is unknown.
    pub cost: Option<MicroUsd>,
    /// Number of turns completed by the model call: 0 or 1.
    pub turns: u32,
    /// Duration of the model or tool call, which counts as active time of the run.
    pub active: Millis,
}

/// A message to an external endpoint. It is delivered after the transaction was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Endpoint that receives the message.
    pub endpoint: String,
    /// Body of the message, as sent to the endpoint.
    pub body: String,
}

/// Messages to append to a thread, i.e. a conversation that several runs share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewThreadMessages {
    /// Thread that the messages are appended to.
    pub thread: ThreadKey,
    /// Messages to append, in order.
    pub messages: Vec<Message>,
}

/// Content that is stored under its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Hash and length of the blob's content.
    pub blob_ref: BlobRef,
    /// Bytes of the blob.
    pub content: std::sync::Arc<[u8]>,
}

impl Blob {
    /// Creates a blob from its content and computes the hash of the content.
    pub fn new(blob_content: impl Into<std::sync::Arc<[u8]>>) -> Self {
        let content = blob_content.into();
        Self { blob_ref: BlobRef::for_content(&content), content }
    }

    /// Returns the hash of the content.
    pub const fn hash(&self) -> Hash {
        self.blob_ref.hash
    }
}

/// A tool result that arrived after its run had ended, or who freed the effect key of a call. It is
/// stored outside the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LateToolResult {
    /// Tool call that produced the result or whose effect key was freed.
    pub call: CallId,
    /// The late result, or who freed the effect key, when and why.
    pub text: String,
}
