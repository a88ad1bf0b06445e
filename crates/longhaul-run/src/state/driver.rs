//! Who executes a run: the claims of workers, the drivers that died, and what a run without a driver
//! waits for.

use longhaul_core::id::{Epoch, TimerId};
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
        if let Activity::Parked { wait, .. } = &self.activity {
            return Some(wait);
        }
        None
    }
}
