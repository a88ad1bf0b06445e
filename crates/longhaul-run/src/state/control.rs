//! The control state of a run: everything about it except the conversation.
//!
//! Invariant: the size of the control state does not grow with the length of a run. Each decision
//! copies it, so a copy must cost the same at turn 1 and at turn 10,000.

use std::sync::Arc;

use longhaul_core::event::gate::GateAnswer;
use longhaul_core::event::run::{CancelCause, CompactionModel, CompactionPolicy};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{AgentName, CallId, Epoch, GateId, RunId, SteerId, TimerId};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::{Budget, BudgetAccount, BudgetCap};
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::policy::rule::RememberedApproval;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, RunOutput, WaitReason};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd, ModelPricing, Usage};
use serde::{Deserialize, Serialize};

use crate::state::attempt_time::AttemptActiveTime;
use crate::state::call::TrackedToolCall;
use crate::state::empty_replies::EmptyReplyCounter;
use crate::state::loop_guard::LoopGuard;
use crate::state::outcome::GradingRounds;
use crate::state::output_retries::InvalidFinalAnswerCounter;
use crate::state::progress_guard::NoProgressGuard;
use crate::state::stage::{RunStage, RunningModelCall, RunningToolCalls};
use crate::state::submitters::Submitters;

/// Maximum number of artifacts of a run. The engine limits their size.
pub const ARTIFACTS_MAX: usize = 256;

/// Minimum number of completed turns between two compactions. After fewer turns, another compaction
/// counts as too soon.
const COMPACTION_TURNS_MIN: u32 = 2;

/// Control state of a run: everything about it except the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlState {
    pub(crate) id: RunId,
    pub(crate) policy: Arc<RunPolicy>,
    /// Current budget caps of the run, including raises.
    pub caps: Budget,
    pub(crate) pricing: ModelPricing,
    pub epoch: Epoch,
    /// Whether a worker has claimed the run and not released it. The worker may have died since.
    pub(crate) driven: bool,
    /// Epoch (number of the claim) of a driver (async task that executed the run) that died without
    /// releasing the run. `None` means that no crash is left to recover from.
    pub(crate) crashed_epoch: Option<Epoch>,
    /// Number of drivers (async tasks that executed the run) that have died since the run last made
    /// progress.
    #[serde(default)]
    pub crashes: u32,
    pub stage: RunStage,
    /// Whether the timer has fired that starts this run at its start time or after the previous run
    /// of its batch.
    #[serde(default)]
    pub(crate) start_timer_fired: bool,
    /// Timer of a wait that a person has cut short, which the start of the next turn deletes. `None`
    /// if there is none.
    #[serde(default)]
    pub(crate) skipped_timer: Option<TimerId>,
    pub idle: Option<IdleReason>,
    pub(crate) cancel: Option<String>,
    /// Cause of the run's cancellation. Meaningless if nobody has cancelled the run.
    #[serde(default)]
    pub(crate) cancel_cause: CancelCause,
    /// Result that the run had when it was cancelled. `None` if it had none, or has not ended.
    #[serde(default)]
    pub(crate) cancelled_output: Option<Arc<RunOutput>>,
    pub(crate) pause: Option<String>,
    /// Error with which the run ends as soon as no work is in progress. `None` means that the run
    /// is not about to fail.
    pub(crate) pending_failure: Option<RunError>,
    /// Gate that asks a person for a missing dependency. `None` means that the run is not blocked
    /// on a dependency.
    pub(crate) blocked_on: Option<GateId>,
    /// Whether a person has resumed the run while it was blocked on the gate `blocked_on`.
    #[serde(default)]
    pub(crate) blocked_resumed: bool,
    pub attempt: u32,
    #[serde(default)]
    pub(crate) attempt_time: AttemptActiveTime,
    /// Numbers of repeated model calls and tool calls, and of takeovers from drivers (async tasks
    /// that executed the run) that died.
    #[serde(default)]
    pub retries: RetryCounts,
    /// Number of completed turns of the run.
    pub turns: u32,
    /// Number of the last turn that was completed or interrupted.
    pub(crate) turn: u32,
    pub steers: Vec<QueuedSteer>,
    pub gates: Vec<GateSpec>,
    /// Child runs that have not ended. Their number is bounded.
    #[serde(default)]
    pub children: Vec<OpenChildRun>,
    /// Texts that tell the model how gates that programs raised were closed and how child runs in
    /// the background ended. Kept until the next turn starts. Their length is bounded.
    #[serde(default)]
    pub(crate) unread_reports: Vec<Arc<str>>,
    /// Votes with a note or a payload on open gates. The model gets the notes when the gate is
    /// closed.
    #[serde(default)]
    pub(crate) votes: Vec<GateAnswer>,
    /// Principals that have added work to the run. Their number is bounded.
    pub(crate) submitters: Submitters,
    /// Approvals that a person has given for the rest of the run.
    pub(crate) approvals: Vec<RememberedApproval>,
    pub totals: UsageTotals,
    /// Estimated size of the conversation in bytes, from which the budget to reserve for a model
    /// call is computed.
    pub(crate) transcript_bytes: u64,
    pub(crate) compactor: Option<Arc<CompactionModel>>,
    pub(crate) compaction: LastCompaction,
    /// When the conversation is compacted, and what its summary keeps. `None` means the defaults.
    #[serde(default)]
    pub(crate) compaction_policy: Option<Arc<CompactionPolicy>>,
    /// Whether a person has rejected a result of the run. Then later results are no longer approved
    /// automatically after a delay.
    #[serde(default)]
    pub(crate) result_rejected: bool,
    pub(crate) warned: Vec<BudgetCap>,
    /// Budget cap that was exhausted. A cap of the whole tree of runs may have been raised since
    /// through another run. `None` means that no cap is exhausted.
    pub(crate) exhausted_cap: Option<BudgetCap>,
    /// Value of `exhausted_cap` in millionths of a US dollar or in tokens, if it is a cap of the
    /// whole tree of runs. `None` means that it is a cap of this run alone.
    #[serde(default)]
    pub(crate) exhausted_tree_cap: Option<u64>,
    /// Amount by which the exhausted cap is too low for the next model call, in millionths of a US
    /// dollar or tokens. 0 if it is unknown.
    #[serde(default)]
    pub(crate) missing_budget: u64,
    /// Whether the last model reply was interrupted and no message to the model followed it.
    pub(crate) interrupted: bool,
    /// Artifacts of the run's tool calls, which become artifacts of its output. Bounded.
    #[serde(default)]
    pub(crate) artifacts: Arc<Vec<RawJson>>,
    /// Detects a run that repeats the same calls with the same results.
    #[serde(default)]
    pub(crate) loop_guard: LoopGuard,
    /// Detects a run that makes no progress.
    #[serde(default)]
    pub(crate) progress_guard: NoProgressGuard,
    /// Counts the final answers that did not match the output schema.
    #[serde(default)]
    pub(crate) output_retries: InvalidFinalAnswerCounter,
    /// Counts the empty replies of the model in a row.
    #[serde(default)]
    pub(crate) empty_replies: EmptyReplyCounter,
    /// Rounds in which results of the run were graded.
    #[serde(default)]
    pub outcome: GradingRounds,
}

/// Reason why a run is idle, which means that no worker executes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdleReason {
    /// The run waits for an event or a timer.
    Parked {
        /// What the parked run waits for.
        wait: WaitReason,
        /// Timer that ends the wait. `None` means that only an event ends the wait.
        timer: Option<TimerId>,
    },
    /// A person has paused the run.
    Paused,
}

/// Number of turns and size of the conversation at the last compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCompaction {
    /// Number of completed turns of the run at the last compaction. `None` means that the
    /// conversation was not compacted yet.
    pub last_turns: Option<u32>,
    /// Size of the conversation in bytes after the last compaction, or at the last failed attempt
    /// to compact it.
    pub remaining_bytes: u64,
}

/// A message from a person that is queued for the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedSteer {
    /// Id of the queued message.
    pub id: SteerId,
    /// Text of the queued message.
    pub text: Arc<str>,
    /// Point at which the queued message is delivered, such as before the next tool call.
    pub delivery: SteerDelivery,
    /// Whether the message is a valid answer to a question that was open when it arrived.
    pub answers: bool,
    /// Whether the message is a task that was added to the run.
    #[serde(default)]
    pub is_task: bool,
    /// Principal that wrote the message.
    #[serde(default)]
    pub by: String,
}

/// A child run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenChildRun {
    pub id: RunId,
    /// Agent that executes the child run.
    pub agent: AgentName,
    /// Tool call that started the child run. `None` means that the child run grades the result of
    /// the run.
    pub call: Option<CallId>,
}

/// Numbers of retries of a run, which are independent of each other and of the run's attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryCounts {
    /// Number of model calls that were repeated because the provider had failed.
    pub model_calls: u32,
    /// Number of tool calls that were started again because their worker had died.
    pub tool_calls: u32,
    /// Number of drivers (async tasks that execute the run) that took over the run from a driver
    /// that had died.
    pub takeovers: u32,
}

/// Resources that a run has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Tokens that the run has used so far.
    pub usage: Usage,
    /// Total cost of the run so far, without calls whose price is unknown.
    pub cost: MicroUsd,
    /// Whether the cost of at least one model call is unknown.
    pub unpriced: bool,
    /// Total time that workers have spent on the run, between claim and park.
    pub active: Millis,
    /// Budget reserved for the model call that is running.
    pub held: BudgetAmount,
    /// Budget reserved for model calls whose result was lost in a crash.
    pub lost: BudgetAmount,
}

impl ControlState {
    pub(crate) fn new(id: RunId, task: &TaskSpec) -> Self {
        Self {
            id,
            policy: Arc::new(task.policy.clone()),
            caps: task.policy.budget,
            pricing: ModelPricing::default(),
            epoch: Epoch::default(),
            driven: false,
            start_timer_fired: false,
            skipped_timer: None,
            crashed_epoch: None,
            crashes: 0,
            stage: RunStage::New,
            idle: None,
            cancel: None,
            cancel_cause: CancelCause::default(),
            cancelled_output: None,
            pause: None,
            pending_failure: None,
            blocked_on: None,
            blocked_resumed: false,
            attempt: 1,
            attempt_time: AttemptActiveTime::default(),
            retries: RetryCounts::default(),
            turns: 0,
            turn: 0,
            steers: Vec::new(),
            gates: Vec::new(),
            children: Vec::new(),
            votes: Vec::new(),
            submitters: Submitters::from_task(task),
            approvals: Vec::new(),
            totals: UsageTotals::default(),
            transcript_bytes: 0,
            compactor: None,
            compaction: LastCompaction::default(),
            compaction_policy: None,
            result_rejected: false,
            warned: Vec::new(),
            exhausted_cap: None,
            exhausted_tree_cap: None,
            missing_budget: 0,
            interrupted: false,
            artifacts: Arc::default(),
            loop_guard: LoopGuard::default(),
            progress_guard: NoProgressGuard::default(),
            output_retries: InvalidFinalAnswerCounter::default(),
            unread_reports: Vec::new(),
            empty_replies: EmptyReplyCounter::default(),
            outcome: GradingRounds::default(),
        }
    }

    /// Returns the active time of the current attempt, not counting calls that are still running.
    pub const fn attempt_active(&self) -> Millis {
        self.attempt_time.active(self.totals.active)
    }

    /// Returns the active time of the current attempt at which its next timeout passes. `None` means
    /// that no timeout is left.
    pub fn active_time_of_next_timeout(&self) -> Option<Millis> {
        self.attempt_time.active_time_of_next_timeout(&self.policy.retry)
    }

    /// Returns whether the current attempt has exceeded its soft timeout.
    pub const fn is_overdue(&self) -> bool {
        self.attempt_time.overdue
    }

    /// Returns whether the current attempt has reached its hard timeout, so that its work must be
    /// aborted.
    pub const fn is_timed_out(&self) -> bool {
        self.attempt_time.timed_out
    }

    /// Returns whether the run must not start further work: it is being cancelled or paused, about
    /// to fail, or past its hard timeout.
    pub(crate) const fn must_stop(&self) -> bool {
        self.cancel.is_some()
            || self.pause.is_some()
            || self.pending_failure.is_some()
            || self.is_timed_out()
    }

    /// Returns the exhausted cap and its value when it was exhausted, if it is a cap of the budget
    /// that the run shares with other runs. It may have been raised through another run since.
    pub fn exhausted_shared_cap_and_value(&self) -> Option<(BudgetCap, u64)> {
        self.exhausted_cap.zip(self.exhausted_tree_cap)
    }

    /// Returns whether a cap of this budget account is recorded as exhausted and was not raised
    /// since.
    pub fn is_shared_cap_still_exhausted(&self, account: &BudgetAccount) -> bool {
        self.exhausted_shared_cap_and_value()
            .is_some_and(|(cap, value)| account.limit_of_cap(cap) == Some(value))
    }

    /// Returns the active time that the run's budget still allows, without the work in progress.
    /// `None` means that there is no cap, or that it is already recorded as exhausted.
    pub fn remaining_active_time(&self) -> Option<Millis> {
        let cap = self.caps.active.filter(|_| !self.is_active_time_used_up())?;
        Some(cap.minus(self.totals.active))
    }

    /// Returns whether the budget of active time is used up, so that the work in progress must be
    /// aborted.
    pub fn is_active_time_used_up(&self) -> bool {
        self.exhausted_cap == Some(BudgetCap::ActiveTime)
    }

    /// Returns whether the budget of active time is not used up, so that the run may start further
    /// work.
    pub(crate) fn has_active_time_left(&self) -> bool {
        let is_below_cap = self.caps.active.is_none_or(|cap| self.totals.active < cap);
        is_below_cap && !self.is_active_time_used_up()
    }

    pub(crate) fn pricing_of_running_call(&self, running: &RunningModelCall) -> ModelPricing {
        match (&running.model, &self.compactor) {
            (Some(_), Some(compactor)) => compactor.pricing,
            (None, _) | (_, None) => self.pricing,
        }
    }

    /// Returns whether the run has made all turns that its `max_turns` allows.
    pub(crate) fn has_used_all_turns(&self) -> bool {
        self.policy.max_turns.is_some_and(|max| self.turns >= max)
    }

    /// Returns the agent's instructions about what a summary of the conversation has to keep, in
    /// addition to the runtime's own rules. `None` means that there are none.
    pub fn compaction_summary_guidance(&self) -> Option<&str> {
        self.compaction_policy.as_ref()?.keep.as_deref()
    }

    /// Returns whether fewer than `COMPACTION_TURNS_MIN` turns were completed since the last
    /// compaction.
    pub(crate) fn is_soon_after_compaction(&self) -> bool {
        let last = self.compaction.last_turns;
        last.is_some_and(|last| self.turns.saturating_sub(last) < COMPACTION_TURNS_MIN)
    }

    pub(crate) fn set_conversation_size_after_compaction(&mut self, bytes: u64) {
        self.transcript_bytes = bytes;
        self.compaction.remaining_bytes = bytes;
    }

    /// Returns the artifacts of the run's tool calls so far.
    pub fn artifacts(&self) -> &[RawJson] {
        &self.artifacts
    }

    /// Returns the number of the current or next turn, counted from 1 as in the journal.
    pub const fn turn(&self) -> u32 {
        self.turn + 1
    }

    pub(crate) fn has_interrupting_steer(&self) -> bool {
        self.steers.iter().any(|steer| steer.delivery == SteerDelivery::Interrupt)
    }

    /// Returns the tool calls in progress. `None` means that the run is in another stage.
    pub(crate) const fn running_tools(&self) -> Option<&RunningToolCalls> {
        if let RunStage::ToolsRunning(tools) = &self.stage {
            return Some(tools);
        }
        None
    }

    pub(crate) const fn running_tools_mut(&mut self) -> Option<&mut RunningToolCalls> {
        if let RunStage::ToolsRunning(tools) = &mut self.stage {
            return Some(tools);
        }
        None
    }

    /// Returns the tool calls of the current reply. Empty if the run is in another stage.
    pub(crate) fn calls(&self) -> &[TrackedToolCall] {
        self.running_tools().map_or(&[], |tools| &tools.calls)
    }

    pub(crate) fn calls_mut(&mut self) -> &mut [TrackedToolCall] {
        self.running_tools_mut().map_or(&mut [], |tools| &mut tools.calls)
    }

    pub(crate) fn find_open_gate(&self, gate: GateId) -> Option<&GateSpec> {
        self.gates.iter().find(|open| open.id == gate)
    }

    /// Returns whether the current worker is running a model or tool call.
    pub(crate) fn has_running_call(&self) -> bool {
        match &self.stage {
            RunStage::ModelRunning(running) => running.epoch == self.epoch,
            RunStage::ToolsRunning(tools) => {
                tools.calls.iter().any(|call| call.is_running_under_claim(self.epoch))
            }
            RunStage::New
            | RunStage::ModelPending(_)
            | RunStage::Concluding(_)
            | RunStage::Ended(_) => false,
        }
    }

    /// Returns the suspended calls that the run gives up, because it has to stop, a message
    /// interrupts it, or they take too long, and whose tools must be told so.
    pub(crate) fn suspended_calls_to_give_up(&self) -> impl Iterator<Item = &TrackedToolCall> {
        let gives_up_all = self.cancel.is_some()
            || self.pending_failure.is_some()
            || self.is_timed_out()
            || self.has_interrupting_steer();
        let calls = self.calls().iter();
        let calls = calls.filter(move |call| gives_up_all || call.give_up_reason().is_some());
        calls.filter(|call| {
            call.must_cancel_remote_work() && !call.is_running_under_claim(self.epoch)
        })
    }

    /// Returns whether the run has a suspended call that its tool must cancel if the run gives it
    /// up.
    pub fn has_call_to_cancel(&self) -> bool {
        self.calls().iter().any(TrackedToolCall::must_cancel_remote_work)
    }

    /// Returns whether a model call is running, or a tool call that must not be repeated. The run
    /// can't be released before such a call has ended. The next worker starts any other call again.
    pub(crate) fn has_call_to_finish_before_release(&self) -> bool {
        let may_repeat_all = self.running_tools().is_some_and(|tools| {
            let mut calls = tools.calls.iter();
            calls.all(|call| !call.is_running_under_claim(self.epoch) || call.may_repeat())
        });
        self.has_running_call() && !may_repeat_all
    }
}
