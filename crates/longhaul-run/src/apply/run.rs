//! Applies events about a run as a whole to its control state (everything but its conversation).

use std::sync::Arc;

use longhaul_core::event::run::{
    RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunControlRequest, RunFailed, RunPrepared,
    RunRetried, RunRetryScheduled, RunWaiting,
};
use longhaul_core::status::{RunOutcome, WaitReason};

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::control::{ControlState, IdleReason};
use crate::state::loop_guard::LoopGuard;
use crate::state::pending_timer::{PendingTimer, unfired_timer};
use crate::state::progress_guard::NoProgressGuard;
use crate::state::stage::{PendingModelCall, ProviderOutage, RunStage};

impl ControlState {
    pub(super) fn apply_run_claimed(&mut self, data: &RunClaimed) -> ApplyResult {
        if data.epoch <= self.epoch {
            return Err("the epoch must increase");
        }
        // A claim without a release means that the previous driver is dead. A driver that had not
        // recorded its recovery had not started any work, so it does not count as a crash.
        if self.driven && self.crashed_epoch.is_none() {
            self.crashed_epoch = Some(self.epoch);
            self.crashes = self.crashes.saturating_add(1);
        }
        self.epoch = data.epoch;
        self.driven = true;
        self.idle = None;
        NO_MESSAGES
    }

    pub(super) fn apply_run_prepared(&mut self, data: &RunPrepared) -> ApplyResult {
        if !matches!(self.stage, RunStage::New) {
            return Err("a run is prepared only once");
        }
        self.pricing = data.pricing;
        self.compactor = data.compactor.clone().map(Arc::new);
        self.loop_guard = LoopGuard::new(data.identical_calls);
        self.progress_guard = NoProgressGuard::new(data);
        self.compaction_policy = data.compaction.clone().map(Arc::new);
        self.totals.active = self.totals.active.plus(data.perception_active);
        self.stage = RunStage::ModelPending(PendingModelCall::default());
        Ok(data.initial_messages.clone())
    }

    pub(super) fn apply_run_waiting(&mut self, data: &RunWaiting) -> ApplyResult {
        let is_release = data.wait == WaitReason::Worker;
        if self.has_call_to_finish_before_release() || (self.has_running_call() && !is_release) {
            return Err("a run with work in progress can't be parked");
        }
        let sleep = data.timer.zip(data.wait.end_time()).map(|(timer, until)| PendingTimer {
            timer,
            until,
            fired: false,
        });
        // A wait without a timer, such as a release, keeps the timer that was set before.
        match &mut self.stage {
            RunStage::ModelPending(pending) => {
                record_outage_wait(pending, data);
                pending.rate_limited |= matches!(data.wait, WaitReason::RateLimit(_));
                pending.pending_timer = sleep.or(pending.pending_timer);
            }
            RunStage::Concluding(concluding) => {
                concluding.pending_timer = sleep.or(concluding.pending_timer)
            }
            RunStage::New
            | RunStage::ModelRunning(_)
            | RunStage::ToolsRunning(_)
            | RunStage::Ended(_) => {}
        }
        self.set_parked(data.wait.clone(), data.timer);
        NO_MESSAGES
    }

    fn set_parked(&mut self, wait: WaitReason, timer: Option<longhaul_core::id::TimerId>) {
        self.idle = Some(IdleReason::Parked { wait, timer });
        self.driven = false;
    }

    pub(super) fn apply_run_overdue(&mut self) -> ApplyResult {
        self.attempt_time.overdue = true;
        NO_MESSAGES
    }

    pub(super) fn apply_run_timed_out(&mut self) -> ApplyResult {
        self.attempt_time.timed_out = true;
        NO_MESSAGES
    }

    pub(super) fn apply_run_recovered(&mut self) -> ApplyResult {
        self.crashed_epoch = None;
        self.retries.takeovers = self.retries.takeovers.saturating_add(1);
        NO_MESSAGES
    }

    pub(super) fn apply_pause_requested(&mut self, data: &RunControlRequest) -> ApplyResult {
        self.pause.get_or_insert_with(|| data.by.clone());
        NO_MESSAGES
    }

    pub(super) fn apply_run_paused(&mut self) -> ApplyResult {
        if self.has_running_call() {
            return Err("a run with work in progress can't be paused");
        }
        self.idle = Some(IdleReason::Paused);
        self.pause = None;
        self.driven = false;
        NO_MESSAGES
    }

    pub(super) fn apply_run_resumed(&mut self, data: &RunControlRequest) -> ApplyResult {
        self.pause = None;
        self.crashes = 0;
        self.clear_exhausted_own_cap();
        self.blocked_resumed = self.blocked_on.is_some();
        // A person who resumes a run that waits for a retry wants the request to be sent now.
        if let RunStage::ModelPending(pending) = &mut self.stage {
            let skipped = unfired_timer(pending.pending_timer.take());
            self.skipped_timer = skipped.or(self.skipped_timer);
            pending.resumed = true;
        }
        if let Some(raise) = data.raise {
            match data.raises_tree {
                true => self.clear_exhausted_own_cap(),
                false => self.raise_budget_caps(raise),
            }
        }
        NO_MESSAGES
    }

    pub(super) fn apply_run_blocked(&mut self, data: &RunBlocked) -> ApplyResult {
        let mut calls = self.calls().iter();
        let asked_by_call = calls.any(|call| call.gate() == Some(data.gate));
        if !asked_by_call {
            self.blocked_on = Some(data.gate);
        }
        self.set_parked(WaitReason::Blocked(data.gate), None);
        NO_MESSAGES
    }

    pub(super) fn apply_cancel_requested(&mut self, data: &RunControlRequest) -> ApplyResult {
        if self.cancel.is_none() {
            self.cancel_cause = data.cause;
            self.cancel = Some(match data.reason.as_str() {
                "" => format!("cancelled by {}", data.by),
                reason => format!("cancelled by {}: {reason}", data.by),
            });
        }
        NO_MESSAGES
    }

    pub(super) fn apply_run_cancelled(&mut self, data: &RunCancelled) -> ApplyResult {
        self.cancelled_output = data.output.as_deref().cloned().map(Arc::new);
        self.end_run(RunOutcome::Cancelled(data.reason.clone()))
    }

    pub(super) fn apply_run_completed(&mut self, data: &RunCompleted) -> ApplyResult {
        self.end_run(RunOutcome::Completed(data.output.clone()))
    }

    pub(super) fn apply_run_failed(&mut self, data: &RunFailed) -> ApplyResult {
        self.end_run(RunOutcome::Failed(data.error.clone()))
    }

    fn end_run(&mut self, outcome: RunOutcome) -> ApplyResult {
        if self.has_running_call() {
            return Err("a run with work in progress can't be ended");
        }
        self.stage = RunStage::Ended(outcome);
        self.idle = None;
        self.driven = false;
        self.gates.clear();
        self.votes.clear();
        self.steers.clear();
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
        pending.failures = 0;
        self.attempt = data.attempt;
        self.attempt_time = self.attempt_time.reset_for_new_attempt(self.totals.active);
        NO_MESSAGES
    }
}

/// Records a wait for a provider that is unavailable. A run that was woken early and parks again
/// continues the same wait.
fn record_outage_wait(pending: &mut PendingModelCall, data: &RunWaiting) {
    let WaitReason::Outage { since, class, .. } = data.wait else {
        return;
    };
    let is_same_wait = pending.pending_timer.map(|pending| pending.timer) == data.timer;
    let waits = pending.outage.map_or(0, |outage| outage.waits);
    let waits = waits.saturating_add(u32::from(!is_same_wait));
    pending.outage = Some(ProviderOutage { since, class, waits });
    // The preferred model is tried again.
    pending.unavailable_model = None;
}
