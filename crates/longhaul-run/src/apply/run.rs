//! Facts about the run as a whole, taken in.
//!
//! Never: decides.

use std::sync::Arc;

use longhaul_core::event::run::{
    RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunControlRequest, RunFailed, RunPrepared,
    RunRetried, RunRetryScheduled, RunWaiting,
};
use longhaul_core::status::{Outcome, Wait};

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::control::{Control, Idle};
use crate::state::loop_guard::LoopGuard;
use crate::state::stage::{ModelPending, PendingTimer, Stage};

impl Control {
    pub(super) fn claimed(&mut self, data: &RunClaimed) -> ApplyResult {
        if data.epoch <= self.epoch {
            return Err("an epoch only rises");
        }
        // Claimed while somebody still seemed to drive it: that one is dead. One that
        // had not recorded its recovery yet had begun nothing, and is not counted.
        if self.driven && self.crashed_epoch.is_none() {
            self.crashed_epoch = Some(self.epoch);
            self.crashes = self.crashes.saturating_add(1);
        }
        self.epoch = data.epoch;
        self.driven = true;
        self.idle = None;
        NO_MESSAGES
    }

    pub(super) fn perceived(&mut self, data: &RunPrepared) -> ApplyResult {
        if !matches!(self.stage, Stage::New) {
            return Err("the world is looked at once");
        }
        self.pricing = data.pricing;
        self.compactor = data.compactor.clone().map(Arc::new);
        self.loop_guard = LoopGuard::new(data.identical_calls);
        self.stage = Stage::ModelPending(ModelPending::default());
        Ok(data.initial_messages.clone())
    }

    pub(super) fn waiting(&mut self, data: &RunWaiting) -> ApplyResult {
        let is_release = data.wait == Wait::Worker;
        if self.has_unrepeatable_work() || (self.is_busy() && !is_release) {
            return Err("a run with something under way does not rest");
        }
        let sleep = data.timer.zip(data.wait.until()).map(|(timer, until)| PendingTimer {
            timer,
            until,
            fired: false,
        });
        // A rest without a timer, such as a release, takes none away.
        match &mut self.stage {
            Stage::ModelPending(thinking) => {
                thinking.pending_timer = sleep.or(thinking.pending_timer)
            }
            Stage::Concluding(concluding) => {
                concluding.pending_timer = sleep.or(concluding.pending_timer)
            }
            Stage::New | Stage::ModelRunning(_) | Stage::ToolsRunning(_) | Stage::Ended(_) => {}
        }
        self.park(data.wait.clone(), data.timer);
        NO_MESSAGES
    }

    fn park(&mut self, wait: Wait, timer: Option<longhaul_core::id::TimerId>) {
        self.idle = Some(Idle::Parked { wait, timer });
        self.driven = false;
    }

    pub(super) fn recovered(&mut self) -> ApplyResult {
        self.crashed_epoch = None;
        NO_MESSAGES
    }

    pub(super) fn pause_requested(&mut self, data: &RunControlRequest) -> ApplyResult {
        self.pause.get_or_insert_with(|| data.by.clone());
        NO_MESSAGES
    }

    pub(super) fn paused(&mut self) -> ApplyResult {
        if self.is_busy() {
            return Err("a run with something under way does not stand still");
        }
        self.idle = Some(Idle::Paused);
        self.pause = None;
        self.driven = false;
        NO_MESSAGES
    }

    pub(super) fn resumed(&mut self, data: &RunControlRequest) -> ApplyResult {
        self.pause = None;
        self.crashes = 0;
        // The account may have been filled through another run of the tree.
        self.exhausted_cap = None;
        if let Some(raise) = data.raise {
            self.raise_caps(raise);
        }
        NO_MESSAGES
    }

    pub(super) fn blocked(&mut self, data: &RunBlocked) -> ApplyResult {
        let mut calls = self.calls().iter();
        let asked_by_call = calls.any(|call| call.gate() == Some(data.gate));
        if !asked_by_call {
            self.blocked_on = Some(data.gate);
        }
        self.park(Wait::Blocked(data.gate), None);
        NO_MESSAGES
    }

    pub(super) fn cancel_requested(&mut self, data: &RunControlRequest) -> ApplyResult {
        self.cancel.get_or_insert_with(|| match data.reason.as_str() {
            "" => format!("cancelled by {}", data.by),
            reason => format!("cancelled by {}: {reason}", data.by),
        });
        NO_MESSAGES
    }

    pub(super) fn cancelled(&mut self, data: &RunCancelled) -> ApplyResult {
        self.end(Outcome::Cancelled(data.reason.clone()))
    }

    pub(super) fn completed(&mut self, data: &RunCompleted) -> ApplyResult {
        self.end(Outcome::Completed(data.output.clone()))
    }

    pub(super) fn failed(&mut self, data: &RunFailed) -> ApplyResult {
        self.end(Outcome::Failed(data.error.clone()))
    }

    fn end(&mut self, outcome: Outcome) -> ApplyResult {
        if self.is_busy() {
            return Err("a run with something under way does not end");
        }
        self.stage = Stage::Ended(outcome);
        self.idle = None;
        self.driven = false;
        self.gates.clear();
        self.steers.clear();
        NO_MESSAGES
    }

    pub(super) fn retry_scheduled(&mut self, data: &RunRetryScheduled) -> ApplyResult {
        let Stage::ModelPending(thinking) = &mut self.stage else {
            return Err("only a run about to ask the model is tried again");
        };
        thinking.retry_attempt = Some(data.attempt);
        NO_MESSAGES
    }

    pub(super) fn retried(&mut self, data: &RunRetried) -> ApplyResult {
        let Stage::ModelPending(thinking) = &mut self.stage else {
            return Err("only a run about to ask the model is tried again");
        };
        thinking.retry_attempt = None;
        thinking.failures = 0;
        self.attempt = data.attempt;
        NO_MESSAGES
    }
}
