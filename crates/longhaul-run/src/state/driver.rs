//! Who executes a run: the claims of workers, the drivers that died, and what a run without a driver
//! waits for.
//!
//! The timeouts of a run limit the active time of the current attempt (time that workers spend on
//! the run). The durations of calls are measured by drivers (async tasks that execute runs) and journaled
//! with the results. Only for a call whose driver died or released the run, the times of journal
//! entries are used. Time without a driver and in waits is not counted.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{Epoch, TimerId};
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::wait::WaitReason;
use serde::{Deserialize, Serialize};

/// Claims of workers on a run. A driver is the async task that executes the run under a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverState {
    /// Number of the latest claim.
    pub epoch: Epoch,
    pub activity: Activity,
    /// Epoch of a driver that died without releasing the run. `None` means that no crash is left to
    /// recover from.
    pub(crate) crashed_epoch: Option<Epoch>,
    /// Number of drivers that have died since the run last made progress.
    pub crashes: u32,
}

/// Whether a worker executes the run, and if not, what the run waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// No worker has claimed the run, and any worker may.
    #[default]
    Ready,
    /// A worker has claimed the run and not released it. The worker may have died since.
    Driven,
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

/// The current attempt of a run: its active time (time that workers spend on it), and which of its
/// timeouts have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Active time that the run had used when the current attempt started.
    start: Millis,
    /// Time of calls whose duration was not recorded, because their driver (the async task that
    /// executed the run) died or released the run.
    unrecorded: Millis,
    /// Time of the last journal entry up to which the durations of all calls are recorded.
    pub(crate) recorded_until: Timestamp,
    /// Time of the last journal entry that a worker wrote while it executed the run.
    last_entry: Timestamp,
    /// Whether the soft timeout of the attempt has passed.
    pub overdue: bool,
    /// Whether the hard timeout of the attempt has passed.
    pub timed_out: bool,
}

impl DriverState {
    /// Records a claim. A claim without a release means that the previous driver is dead. A driver
    /// that had not recorded its recovery had not started any work, so it does not count as a crash.
    pub(crate) fn claim(&mut self, epoch: Epoch) {
        if self.activity == Activity::Driven && self.crashed_epoch.is_none() {
            self.crashed_epoch = Some(self.epoch);
            self.crashes = self.crashes.saturating_add(1);
        }
        self.epoch = epoch;
        self.activity = Activity::Driven;
    }

    /// Returns whether the run is parked or paused, so that no worker can claim it.
    pub const fn is_idle(&self) -> bool {
        matches!(self.activity, Activity::Parked { .. } | Activity::Paused)
    }

    /// Returns what the run waits for. `None` means that it is not parked.
    pub const fn wait(&self) -> Option<&WaitReason> {
        if let Activity::Parked { wait, .. } = &self.activity { Some(wait) } else { None }
    }
}

impl Default for Attempt {
    fn default() -> Self {
        Self {
            number: 1,
            start: Millis::ZERO,
            unrecorded: Millis::ZERO,
            recorded_until: Timestamp::default(),
            last_entry: Timestamp::default(),
            overdue: false,
            timed_out: false,
        }
    }
}

impl Attempt {
    /// Returns the active time of the attempt. `total` is the active time of the whole run.
    pub(crate) const fn active(&self, total: Millis) -> Millis {
        total.minus(self.start).plus(self.unrecorded)
    }

    /// Returns the active time of the attempt at which its next timeout passes. `None` means that no
    /// timeout is left.
    pub(crate) fn next_timeout(&self, retry: &RetryPolicy) -> Option<Millis> {
        if self.timed_out {
            return None;
        }
        let soft_timeout = retry.soft_timeout.filter(|_| !self.overdue);
        soft_timeout.into_iter().chain(retry.hard_timeout).min()
    }

    /// Starts a new attempt. `used_active_time` is the active time that the run has used so far.
    pub(crate) fn restart(&mut self, number: u32, used_active_time: Millis) {
        let Self { recorded_until, last_entry, .. } = *self;
        let start = used_active_time;
        *self = Self { number, start, recorded_until, last_entry, ..Self::default() };
    }

    /// Updates the times from a journal entry that is about to be applied. `has_running_call` says
    /// whether a call was running before the entry.
    pub(crate) fn update_from_entry(&mut self, entry: &JournalEntry, has_running_call: bool) {
        // An entry of an outsider says nothing about how long the driver has worked.
        if entry.event.runs_woken_by_outside_append().is_some() {
            return;
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all other entries follow recorded durations"
        )]
        match &entry.event {
            Event::RunClaimed(_) => {
                if has_running_call {
                    let active_time = self.last_entry.duration_since(self.recorded_until);
                    self.unrecorded = self.unrecorded.plus(active_time);
                }
                self.recorded_until = entry.at;
            }
            Event::ToolProgress(_) | Event::RunOverdue(_) | Event::RunTimedOut(_) => {}
            Event::RunWaiting(data) if data.wait == WaitReason::Worker => {}
            _ => self.recorded_until = entry.at,
        }
        self.last_entry = entry.at;
    }
}
