//! Facts about the run as a whole, taken in.
//!
//! Never: decides.

use std::sync::Arc;

use longhaul_core::event::run::{
    RunAsked, RunBlocked, RunCancelled, RunClaimed, RunCompleted, RunFailed, RunPerceived,
    RunRetried, RunRetryScheduled, RunWaiting,
};
use longhaul_core::status::{Outcome, Wait};

use crate::apply::{SILENT, Said};
use crate::state::circles::Circles;
use crate::state::control::{Control, Rest};
use crate::state::stage::{Sleep, Stage, Thinking};

impl Control {
    pub(super) fn claimed(&mut self, data: &RunClaimed) -> Said {
        if data.epoch <= self.epoch {
            return Err("an epoch only rises");
        }
        // Claimed while somebody still seemed to drive it: that one is dead. One that
        // had not recorded its recovery yet had begun nothing, and is not counted.
        if self.driven && self.orphaned.is_none() {
            self.orphaned = Some(self.epoch);
            self.crashes = self.crashes.saturating_add(1);
        }
        self.epoch = data.epoch;
        self.driven = true;
        self.rest = None;
        SILENT
    }

    pub(super) fn perceived(&mut self, data: &RunPerceived) -> Said {
        if !matches!(self.stage, Stage::New) {
            return Err("the world is looked at once");
        }
        self.tariff = data.tariff;
        self.compactor = data.compactor.clone().map(Arc::new);
        self.circles = Circles::new(data.circles);
        self.stage = Stage::Thinking(Thinking::default());
        Ok(data.opening.clone())
    }

    pub(super) fn waiting(&mut self, data: &RunWaiting) -> Said {
        let is_release = data.wait == Wait::Worker;
        if self.must_stay() || (self.is_busy() && !is_release) {
            return Err("a run with something under way does not rest");
        }
        let sleep = data
            .timer
            .zip(data.wait.until())
            .map(|(timer, until)| Sleep {
                timer,
                until,
                fired: false,
            });
        // A rest without a timer, such as a release, takes none away.
        match &mut self.stage {
            Stage::Thinking(thinking) => thinking.sleep = sleep.or(thinking.sleep),
            Stage::Concluding(concluding) => concluding.sleep = sleep.or(concluding.sleep),
            Stage::New | Stage::Asking(_) | Stage::Acting(_) | Stage::Ended(_) => {}
        }
        self.park(data.wait.clone(), data.timer);
        SILENT
    }

    fn park(&mut self, wait: Wait, timer: Option<longhaul_core::id::TimerId>) {
        self.rest = Some(Rest::Parked { wait, timer });
        self.driven = false;
    }

    pub(super) fn recovered(&mut self) -> Said {
        self.orphaned = None;
        SILENT
    }

    pub(super) fn pause_requested(&mut self, data: &RunAsked) -> Said {
        self.pause.get_or_insert_with(|| data.by.clone());
        SILENT
    }

    pub(super) fn paused(&mut self) -> Said {
        if self.is_busy() {
            return Err("a run with something under way does not stand still");
        }
        self.rest = Some(Rest::Paused);
        self.pause = None;
        self.driven = false;
        SILENT
    }

    pub(super) fn resumed(&mut self, data: &RunAsked) -> Said {
        self.pause = None;
        self.crashes = 0;
        // The account may have been filled through another run of the tree.
        self.broke = None;
        if let Some(raise) = data.raise {
            self.raise(raise);
        }
        SILENT
    }

    pub(super) fn blocked(&mut self, data: &RunBlocked) -> Said {
        let mut calls = self.calls().iter();
        let asked_by_call = calls.any(|call| call.gate() == Some(data.gate));
        if !asked_by_call {
            self.missing = Some(data.gate);
        }
        self.park(Wait::Blocked(data.gate), None);
        SILENT
    }

    pub(super) fn cancel_requested(&mut self, data: &RunAsked) -> Said {
        self.cancel
            .get_or_insert_with(|| match data.reason.as_str() {
                "" => format!("cancelled by {}", data.by),
                reason => format!("cancelled by {}: {reason}", data.by),
            });
        SILENT
    }

    pub(super) fn cancelled(&mut self, data: &RunCancelled) -> Said {
        self.end(Outcome::Cancelled(data.reason.clone()))
    }

    pub(super) fn completed(&mut self, data: &RunCompleted) -> Said {
        self.end(Outcome::Completed(data.output.clone()))
    }

    pub(super) fn failed(&mut self, data: &RunFailed) -> Said {
        self.end(Outcome::Failed(data.fault.clone()))
    }

    fn end(&mut self, outcome: Outcome) -> Said {
        if self.is_busy() {
            return Err("a run with something under way does not end");
        }
        self.stage = Stage::Ended(outcome);
        self.rest = None;
        self.driven = false;
        self.gates.clear();
        self.steers.clear();
        SILENT
    }

    pub(super) fn retry_scheduled(&mut self, data: &RunRetryScheduled) -> Said {
        let Stage::Thinking(thinking) = &mut self.stage else {
            return Err("only a run about to ask the model is tried again");
        };
        thinking.retry = Some(data.attempt);
        SILENT
    }

    pub(super) fn retried(&mut self, data: &RunRetried) -> Said {
        let Stage::Thinking(thinking) = &mut self.stage else {
            return Err("only a run about to ask the model is tried again");
        };
        thinking.retry = None;
        thinking.failures = 0;
        self.attempt = data.attempt;
        SILENT
    }
}
