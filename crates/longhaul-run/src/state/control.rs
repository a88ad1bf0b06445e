//! The control state of a run: everything about it except the conversation.
//!
//! Invariant: the size of the control state does not grow with the length of a run. Each decision
//! copies it, so a copy must cost the same at turn 1 and at turn 10,000.
//!
//! A run stops working because of a cancel, a failure, a pause or a missing dependency, as soon as
//! no work is in progress.

use std::sync::Arc;

use longhaul_core::event::gate::GateAnswer;
use longhaul_core::event::run::{CancelCause, CompactionModel, CompactionPolicy};
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{AgentName, CallId, GateId, RunId, SteerId};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::policy::retry::is_provider_unavailable;
use longhaul_core::policy::rule::RememberedApproval;
use longhaul_core::raw::RawJson;
use longhaul_core::status::{RunError, RunOutput};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::ModelPricing;
use longhaul_core::wait::WaitReason;
use serde::{Deserialize, Serialize};

use crate::state::budget::{BudgetState, UsageTotals};
use crate::state::call::TrackedCall;
use crate::state::driver::{Activity, Attempt, DriverState};
use crate::state::guards::Guards;
use crate::state::sandbox::{RunSandbox, WorkspaceState};
use crate::state::stage::{
    ConcludingRunState, GradingRounds, PendingModelCall, ProviderOutage, RunStage,
    RunningModelCall, RunningToolCalls, TurnState,
};
use crate::state::submitters::Submitters;

/// Maximum number of artifacts of a run. The engine limits their size.
pub const ARTIFACTS_MAX: usize = 256;

/// Minimum number of completed turns between two compactions. After fewer turns, another compaction
/// counts as too soon.
const COMPACTION_TURNS_MIN: u32 = 2;

/// Control state of a run: everything about it except the conversation. It consists of parts, which
/// a retry resets or keeps as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ControlState {
    pub(crate) id: RunId,
    pub(crate) policy: Arc<RunPolicy>,
    pub(crate) pricing: ModelPricing,
    pub stage: RunStage,
    pub driver: DriverState,
    pub(crate) stop: StopReasons,
    pub people: PeopleState,
    pub attempt: Attempt,
    /// Numbers of repeated model calls and tool calls, and of takeovers from drivers (async tasks
    /// that executed the run) that died.
    pub retries: RetryCounts,
    pub budget: BudgetState,
    pub totals: UsageTotals,
    pub(crate) guards: Guards,
    pub(crate) compaction: CompactionState,
    /// Rounds in which results of the run were graded.
    pub outcome: GradingRounds,
    /// Whether a person has rejected a result of the run. Then later results are no longer approved
    /// automatically after a delay.
    pub(crate) result_rejected: bool,
    /// Number of completed turns of the run.
    pub turns: u32,
    /// Number of the last turn that was completed or interrupted.
    pub(crate) turn: u32,
    /// Child runs that have not ended. Their number is bounded.
    pub children: Vec<OpenChildRun>,
    /// Texts that tell the model how gates that programs raised were closed and how child runs in
    /// the background ended. Kept until the next turn starts. Their length is bounded.
    pub(crate) unread_reports: Vec<Arc<str>>,
    /// Principals that have added work to the run. Their number is bounded.
    pub(crate) submitters: Submitters,
    /// Estimated size of the conversation in bytes, from which the budget to reserve for a model
    /// call is computed.
    pub(crate) transcript_bytes: u64,
    /// Last sandbox of the run. `None` means that no tool call has needed one yet.
    pub sandbox: Option<Box<RunSandbox>>,
    #[serde(default)]
    pub workspace: WorkspaceState,
    /// Artifacts of the run's tool calls, which become artifacts of its output. Bounded.
    pub artifacts: Arc<Vec<RawJson>>,
}

/// What the run asks people and programs, and what they have told it. A retry and the end of the run
/// reset it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeopleState {
    pub gates: Vec<GateSpec>,
    /// Votes with a note or a payload on open gates. The model gets the notes when the gate is
    /// closed.
    pub(crate) votes: Vec<GateAnswer>,
    pub steers: Vec<QueuedSteer>,
    /// Approvals that a person has given for the rest of the run.
    pub(crate) approvals: Vec<RememberedApproval>,
}

/// How the conversation is compacted, and the last compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompactionState {
    pub(crate) compactor: Option<Arc<CompactionModel>>,
    /// When the conversation is compacted, and what its summary keeps. `None` means the defaults.
    pub(crate) policy: Option<Arc<CompactionPolicy>>,
    /// Number of completed turns of the run at the last compaction. `None` means that the
    /// conversation was not compacted yet.
    pub(crate) last_turns: Option<u32>,
    /// Size of the conversation in bytes after the last compaction, or at the last failed attempt
    /// to compact it.
    pub(crate) remaining_bytes: u64,
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
    pub is_task: bool,
    /// Principal that wrote the message.
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

/// Reasons for which a run stops working, the strongest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopReasons {
    /// Cancel of the run. `None` means that nobody has cancelled it.
    pub(crate) cancel: Option<Cancellation>,
    /// Error with which the run ends. `None` means that the run is not about to fail.
    pub(crate) failure: Option<RunError>,
    /// Principal that has paused the run. `None` means that the run is not about to be paused.
    pub(crate) pause: Option<String>,
    /// Missing dependency. `None` means that the run is not blocked on a dependency.
    pub(crate) blocked: Option<MissingDependency>,
}

/// Cancel of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cancellation {
    /// Who has cancelled the run and why, such as `cancelled by cli:anna`.
    pub(crate) reason: String,
    pub(crate) cause: CancelCause,
}

/// A dependency that a blocked run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingDependency {
    /// Gate that asks a person for the dependency.
    pub(crate) gate: GateId,
    /// Whether a person has resumed the run after the gate was opened.
    pub(crate) resumed: bool,
}

impl ControlState {
    pub(crate) fn new(id: RunId, task: &TaskSpec) -> Self {
        Self {
            id,
            policy: Arc::new(task.policy.clone()),
            budget: BudgetState { caps: task.policy.budget, ..BudgetState::default() },
            submitters: Submitters::from_task(task),
            sandbox: task.sandbox.as_deref().map(RunSandbox::inherited),
            workspace: WorkspaceState::of_new_run(task.sandbox.is_some()),
            ..Self::default()
        }
    }

    /// Returns the active time of the current attempt, not counting calls that are still running.
    pub const fn attempt_active(&self) -> Millis {
        self.attempt.active(self.totals.active)
    }

    /// Returns the active time of the current attempt at which its next timeout passes. `None` means
    /// that no timeout is left.
    pub fn next_timeout(&self) -> Option<Millis> {
        self.attempt.next_timeout(&self.policy.retry)
    }

    /// Returns whether the run must not start further work: it is being cancelled or paused, about
    /// to fail, or past its hard timeout.
    pub(crate) const fn must_stop(&self) -> bool {
        self.stop.stops_run() || self.attempt.timed_out
    }

    /// Returns the active time that the run's budget still allows, without the work in progress.
    /// `None` means that there is no cap, or that it is already recorded as exhausted.
    pub fn remaining_active_time(&self) -> Option<Millis> {
        let cap = self.budget.caps.active.filter(|_| !self.budget.is_active_time_used_up())?;
        Some(cap.minus(self.totals.active))
    }

    /// Returns whether the budget of active time is not used up, so that the run may start further
    /// work.
    pub(crate) fn has_active_time_left(&self) -> bool {
        let is_below_cap = self.budget.caps.active.is_none_or(|cap| self.totals.active < cap);
        is_below_cap && !self.budget.is_active_time_used_up()
    }

    pub(crate) fn pricing_of_running_call(&self, running: &RunningModelCall) -> ModelPricing {
        match (&running.model, &self.compaction.compactor) {
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
    pub fn summary_guidance(&self) -> Option<&str> {
        self.compaction.policy.as_ref()?.keep.as_deref()
    }

    /// Returns whether fewer than `COMPACTION_TURNS_MIN` turns were completed since the last
    /// compaction.
    pub(crate) fn is_soon_after_compaction(&self) -> bool {
        let last = self.compaction.last_turns;
        last.is_some_and(|last| self.turns.saturating_sub(last) < COMPACTION_TURNS_MIN)
    }

    pub(crate) fn set_compacted_size(&mut self, bytes: u64) {
        self.transcript_bytes = bytes;
        self.compaction.remaining_bytes = bytes;
    }

    /// Returns the number of the current or next turn, counted from 1 as in the journal.
    pub const fn turn(&self) -> u32 {
        self.turn + 1
    }

    pub(crate) fn has_interrupting_steer(&self) -> bool {
        self.people.steers.iter().any(|steer| steer.delivery == SteerDelivery::Interrupt)
    }

    /// Returns the tool calls in progress. `None` means that the run is in another stage.
    pub(crate) const fn running_tools(&self) -> Option<&RunningToolCalls> {
        if let RunStage::ToolsRunning(tools) = &self.stage { Some(tools) } else { None }
    }

    pub(crate) const fn running_tools_mut(&mut self) -> Option<&mut RunningToolCalls> {
        if let RunStage::ToolsRunning(tools) = &mut self.stage { Some(tools) } else { None }
    }

    /// Returns the tool calls of the current reply. Empty if the run is in another stage.
    pub(crate) fn calls(&self) -> &[TrackedCall] {
        self.running_tools().map_or(&[], |tools| &tools.calls)
    }

    pub(crate) fn calls_mut(&mut self) -> &mut [TrackedCall] {
        self.running_tools_mut().map_or(&mut [], |tools| &mut tools.calls)
    }

    /// Returns a tool call of the current reply. `None` if the reply has no such call.
    pub(crate) fn call(&self, id: CallId) -> Option<&TrackedCall> {
        self.calls().iter().find(|call| call.id == id)
    }

    /// Returns the data of a run that is ready to call the model. `None` in another stage.
    pub(crate) const fn pending_call(&self) -> Option<&PendingModelCall> {
        if let RunStage::ModelPending(pending) = &self.stage { Some(pending) } else { None }
    }

    /// Returns the data of a run that is about to end. `None` in another stage.
    pub(crate) const fn concluding(&self) -> Option<&ConcludingRunState> {
        if let RunStage::Concluding(concluding) = &self.stage { Some(concluding) } else { None }
    }

    pub(crate) fn find_open_gate(&self, gate: GateId) -> Option<&GateSpec> {
        self.people.gates.iter().find(|open| open.id == gate)
    }

    /// Returns whether the current worker is running a model or tool call.
    pub(crate) fn has_running_call(&self) -> bool {
        let epoch = self.driver.epoch;
        matches!(&self.stage, RunStage::ModelRunning(running) if running.epoch == epoch)
            || self.calls().iter().any(|call| call.is_running_under_claim(epoch))
    }

    /// Returns the suspended calls that the run gives up, because it has to stop, a message
    /// interrupts it, or they take too long, and whose tools must be told so.
    pub(crate) fn calls_to_give_up(&self) -> impl Iterator<Item = &TrackedCall> {
        let gives_up_all =
            self.stop.ends_run() || self.attempt.timed_out || self.has_interrupting_steer();
        let calls = self.calls().iter();
        let calls = calls.filter(move |call| gives_up_all || call.give_up_reason().is_some());
        calls.filter(|call| {
            call.must_cancel_remote() && !call.is_running_under_claim(self.driver.epoch)
        })
    }

    /// Returns whether the run has a suspended call that its tool must cancel if the run gives it
    /// up.
    pub fn has_call_to_cancel(&self) -> bool {
        self.calls().iter().any(TrackedCall::must_cancel_remote)
    }

    /// Returns whether a model call is running, or a tool call that must not be repeated. The run
    /// can't be released before such a call has ended. The next worker starts any other call again.
    pub(crate) fn has_call_to_finish(&self) -> bool {
        let epoch = self.driver.epoch;
        let mut running = self.calls().iter().filter(|call| call.is_running_under_claim(epoch));
        matches!(&self.stage, RunStage::ModelRunning(model) if model.epoch == epoch)
            || running.any(|call| !call.may_repeat())
    }

    /// Returns the result of a run that stays open for messages, until a message leads to another
    /// one. `None` if the run has not come so far.
    pub(crate) fn output_while_open(&self) -> Option<&RunOutput> {
        // The timer is set when the run is parked for messages, after its result was accepted.
        self.concluding().filter(|state| state.timer.is_some()).map(|state| &state.output)
    }

    /// Returns whether a resume changes anything: somebody has paused the run, or it is blocked, at a
    /// limit, or waits before it calls the model again.
    pub fn can_be_resumed(&self) -> bool {
        let is_parked_until_resume = match &self.driver.activity {
            Activity::Paused => true,
            Activity::Parked { wait, .. } => {
                matches!(wait, WaitReason::Blocked(_) | WaitReason::Budget(_) | WaitReason::Cap(_))
            }
            Activity::Ready | Activity::Driven => false,
        };
        is_parked_until_resume
            || self.pending_call().is_some_and(|pending| pending.timer.is_some())
            || self.stop.pause.is_some()
            || self.stop.blocked.is_some()
            || self.budget.exhausted.is_some()
    }

    /// Returns for how long the calls in progress have been running, which no event has recorded
    /// yet. 0 if no call is running.
    pub fn unrecorded_active_time(&self, now: Timestamp) -> Millis {
        match self.driver.activity == Activity::Driven && self.has_running_call() {
            true => now.duration_since(self.attempt.recorded_until),
            false => Millis::ZERO,
        }
    }

    /// Returns whether the run waits for the provider after this failure, instead of counting it as
    /// a failed attempt. During an outage every transient failure belongs to the outage. A fallback
    /// model whose key or account is refused does not end the wait for the preferred model.
    pub(crate) fn must_wait_for_provider(&self, failure: &Failure) -> bool {
        let is_refused_access = matches!(failure.class, FailureClass::Auth | FailureClass::Quota);
        let is_part_of_outage = is_provider_unavailable(failure)
            || (self.current_outage().is_some() && failure.class.is_transient())
            || (is_refused_access && self.unavailable_model().is_some());
        self.policy.retry.outage.0 > 0 && is_part_of_outage
    }

    /// Returns what the model calls of the current turn have in common. `None` if the run neither
    /// calls the model nor is about to.
    fn turn_state(&self) -> Option<&TurnState> {
        if let RunStage::ModelRunning(running) = &self.stage {
            return Some(&running.turn);
        }
        self.pending_call().map(|pending| &pending.turn)
    }

    /// Returns the outage of the provider for which the run waits or during which it calls the
    /// model. `None` means that no outage is known.
    pub(crate) fn current_outage(&self) -> Option<ProviderOutage> {
        self.turn_state()?.outage
    }

    /// Returns the class of the failure that made the run switch to its fallback model instead of
    /// waiting for the provider of the preferred model. `None` means that there was no such switch
    /// in this turn, or that the run has waited for the provider since.
    pub(crate) fn unavailable_model(&self) -> Option<FailureClass> {
        self.turn_state()?.unavailable_model
    }

    /// Returns the value of `unavailable_model` after this failed model call: the value before, if
    /// there is one, or else the class of the failure if it makes the run switch to the fallback
    /// model instead of waiting.
    pub(crate) fn unavailable_model_after(&self, failed: &TurnFailed) -> Option<FailureClass> {
        let class = failed.failure.class;
        let is_switch = failed.fallback_model.is_some() && class.is_transient();
        let is_switch_due_to_outage = is_switch && self.must_wait_for_provider(&failed.failure);
        self.unavailable_model().or(is_switch_due_to_outage.then_some(class))
    }
}

impl StopReasons {
    /// Returns whether the run is cancelled or about to fail.
    pub(crate) const fn ends_run(&self) -> bool {
        self.cancel.is_some() || self.failure.is_some()
    }

    /// Returns whether the run is cancelled, about to fail, or about to be paused.
    pub(crate) const fn stops_run(&self) -> bool {
        self.ends_run() || self.pause.is_some()
    }
}
