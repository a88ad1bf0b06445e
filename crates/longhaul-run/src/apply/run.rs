//! Applies events about a run as a whole to its control state (everything but its conversation).

use std::sync::Arc;

use longhaul_core::event::run::{
    RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunControlRequest, RunFailed, RunPrepared,
    RunRetried, RunRetryScheduled, RunWaiting,
};
use longhaul_core::status::{RunOutcome, RunOutput};
use longhaul_core::wait::{OutageWait, WaitReason};

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::call::PendingTimer;
use crate::state::control::{Cancellation, ControlState, MissingDependency, PeopleState};
use crate::state::driver::Activity;
use crate::state::guards::Guards;
use crate::state::stage::{EndedRun, PendingModelCall, ProviderOutage, RunStage};

impl ControlState {
    pub(super) fn apply_run_claimed(&mut self, data: &RunClaimed) -> ApplyResult {
        if data.epoch <= self.driver.epoch {
            return Err("the epoch must increase");
        }
        self.driver.claim(data.epoch);
        NO_MESSAGES
    }

    pub(super) fn apply_run_prepared(&mut self, data: &RunPrepared) -> ApplyResult {
        if !matches!(self.stage, RunStage::New { .. }) {
            return Err("a run is prepared only once");
        }
        self.pricing = data.pricing;
        self.guards = Guards::new(data);
        self.compaction.compactor = data.compactor.clone().map(Arc::new);
        self.compaction.policy = data.compaction.clone().map(Arc::new);
        self.totals.add_active(data.perception_active);
        self.stage = RunStage::ModelPending(PendingModelCall::default());
        Ok(data.initial_messages.clone())
    }

    pub(super) fn apply_run_waiting(&mut self, data: &RunWaiting) -> ApplyResult {
        let is_release = data.wait == WaitReason::Worker;
        if self.has_call_to_finish() || (self.has_running_call() && !is_release) {
            return Err("a run with work in progress can't be parked");
        }
        let new_timer = |(timer, until)| PendingTimer { timer, until, fired: false };
        let sleep = data.timer.zip(data.wait.end_time()).map(new_timer);
        // A wait without a timer, such as a release, keeps the timer that was set before.
        if let RunStage::ModelPending(pending) = &mut self.stage {
            record_outage_wait(pending, data);
            pending.rate_limited |= matches!(data.wait, WaitReason::RateLimit(_));
            pending.timer = sleep.or(pending.timer);
        } else if let RunStage::Concluding(concluding) = &mut self.stage {
            concluding.timer = sleep.or(concluding.timer);
        }
        if let (WaitReason::SandboxSlot, Some(_), Some(sandbox)) =
            (&data.wait, data.timer, &mut self.sandbox)
        {
            sandbox.failures += 1;
        }
        self.driver.activity = Activity::Parked { wait: data.wait.clone(), timer: data.timer };
        self.mark_sandbox_idle();
        NO_MESSAGES
    }

    pub(super) fn apply_run_recovered(&mut self) {
        self.driver.crashed_epoch = None;
        self.retries.takeovers = self.retries.takeovers.saturating_add(1);
    }

    pub(super) fn apply_pause_requested(&mut self, data: &RunControlRequest) {
        self.stop.pause.get_or_insert_with(|| data.by.clone());
    }

    pub(super) fn apply_run_paused(&mut self) -> ApplyResult {
        if self.has_running_call() {
            return Err("a run with work in progress can't be paused");
        }
        self.driver.activity = Activity::Paused;
        self.mark_sandbox_idle();
        self.stop.pause = None;
        NO_MESSAGES
    }

    pub(super) fn apply_run_resumed(&mut self, data: &RunControlRequest) {
        self.stop.pause = None;
        self.driver.crashes = 0;
        self.budget.clear_exhausted_own_cap();
        if let Some(blocked) = &mut self.stop.blocked {
            blocked.resumed = true;
        }
        // A person who resumes a run that waits for a retry wants the request to be sent now.
        if let RunStage::ModelPending(pending) = &mut self.stage {
            pending.skip_timer();
            pending.resumed = true;
        }
        if let Some(raise) = data.raise {
            match data.raises_tree {
                true => self.budget.clear_exhausted_own_cap(),
                false => self.budget.raise(raise),
            }
        }
    }

    pub(super) fn apply_run_blocked(&mut self, data: &RunBlocked) {
        if !self.calls().iter().any(|call| call.gate() == Some(data.gate)) {
            self.stop.blocked = Some(MissingDependency { gate: data.gate, resumed: false });
        }
        let wait = WaitReason::Blocked(data.gate);
        self.driver.activity = Activity::Parked { wait, timer: None };
        self.mark_sandbox_idle();
    }

    fn mark_sandbox_idle(&mut self) {
        if let Some(sandbox) = &mut self.sandbox {
            sandbox.is_marked_idle = true;
        }
    }

    pub(super) fn apply_cancel_requested(&mut self, data: &RunControlRequest) {
        self.stop.cancel.get_or_insert_with(|| Cancellation {
            reason: match data.reason.as_str() {
                "" => format!("cancelled by {}", data.by),
                reason => format!("cancelled by {}: {reason}", data.by),
            },
            cause: data.cause,
        });
    }

    pub(super) fn apply_run_cancelled(&mut self, data: &RunCancelled) -> ApplyResult {
        self.end_run(RunOutcome::Cancelled(data.reason.clone()), data.output.clone())
    }

    pub(super) fn apply_run_completed(&mut self, data: &RunCompleted) -> ApplyResult {
        self.end_run(RunOutcome::Completed(data.output.clone()), None)
    }

    pub(super) fn apply_run_failed(&mut self, data: &RunFailed) -> ApplyResult {
        self.end_run(RunOutcome::Failed(data.error.clone()), None)
    }

    fn end_run(
        &mut self,
        outcome: RunOutcome,
        cancelled_output: Option<Box<RunOutput>>,
    ) -> ApplyResult {
        if self.has_running_call() {
            return Err("a run with work in progress can't be ended");
        }
        self.stage = RunStage::Ended(EndedRun { outcome, cancelled_output });
        self.driver.activity = Activity::Ready;
        self.people = PeopleState::default();
        NO_MESSAGES
    }

    pub(super) fn apply_retry_scheduled(&mut self, data: &RunRetryScheduled) -> ApplyResult {
        let RunStage::ModelPending(pending) = &mut self.stage else {
            return Err("only a run that is about to call the model can be retried");
        };
        pending.retry_attempt = Some(data.attempt);
        NO_MESSAGES
    }

    pub(super) fn apply_run_retried(&mut self, data: &RunRetried) -> ApplyResult {
        let RunStage::ModelPending(pending) = &mut self.stage else {
            return Err("only a run that is about to call the model can be retried");
        };
        pending.retry_attempt = None;
        pending.turn.failures = 0;
        self.attempt.restart(data.attempt, self.totals.active);
        NO_MESSAGES
    }
}

/// Records a wait for a provider that is unavailable. A run that was woken early and parks again
/// continues the same wait.
fn record_outage_wait(pending: &mut PendingModelCall, data: &RunWaiting) {
    let WaitReason::Outage(OutageWait { since, class, .. }) = data.wait else { return };
    let is_same_wait = pending.timer.map(|pending| pending.timer) == data.timer;
    let turn = &mut pending.turn;
    let waits = turn.outage.map_or(0, |outage| outage.waits);
    let waits = waits.saturating_add(u32::from(!is_same_wait));
    turn.outage = Some(ProviderOutage { since, class, waits });
    // The preferred model is tried again.
    turn.unavailable_model = None;
}
