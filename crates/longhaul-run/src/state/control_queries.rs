//! Questions that commands and views ask about the control state of a run: its result while it is
//! open, whether a resume helps, and the time of the calls in progress.

use longhaul_core::status::{RunOutput, WaitReason};
use longhaul_core::time::{Millis, Timestamp};

use crate::state::control::{ControlState, IdleReason};
use crate::state::stage::{ConcludingRunState, RunStage};

impl ControlState {
    /// Returns the result of a run that stays open for messages, until a message leads to another
    /// one. `None` if the run has not come so far.
    pub(crate) fn output_while_open(&self) -> Option<&RunOutput> {
        // The timer is set when the run is parked for messages, after its result was accepted.
        let RunStage::Concluding(ConcludingRunState { output, pending_timer: Some(_), .. }) =
            &self.stage
        else {
            return None;
        };
        Some(output)
    }

    /// Returns whether a resume changes anything: somebody has paused the run, or it is blocked, at a
    /// limit, or waits before it calls the model again.
    pub fn can_be_resumed(&self) -> bool {
        let is_parked_until_resume = match &self.idle {
            Some(IdleReason::Paused) => true,
            Some(IdleReason::Parked { wait, .. }) => {
                matches!(wait, WaitReason::Blocked(_) | WaitReason::Budget(_) | WaitReason::Cap(_))
            }
            None => false,
        };
        let delays_model_call = matches!(
            &self.stage,
            RunStage::ModelPending(pending) if pending.pending_timer.is_some()
        );
        is_parked_until_resume
            || delays_model_call
            || self.pause.is_some()
            || self.blocked_on.is_some()
            || self.exhausted_cap.is_some()
    }

    /// Returns for how long the calls in progress have been running, which no event has recorded
    /// yet. 0 if no call is running.
    pub fn unrecorded_active_time(&self, now: Timestamp) -> Millis {
        match self.driven && self.has_running_call() {
            true => now.duration_since(self.attempt_time.recorded_until),
            false => Millis::ZERO,
        }
    }
}
