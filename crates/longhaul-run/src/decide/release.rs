//! Releases a run when its worker shuts down, and builds errors for inputs that are invalid in the
//! current stage.

use longhaul_core::change::RunSchedulingUpdate;
use longhaul_core::event::Event;
use longhaul_core::event::run::RunWaiting;
use longhaul_core::status::WaitReason;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;

/// Releases the run so that another worker can claim it. Rejected while a call is running that must
/// not be repeated.
pub(super) fn release_run_to_other_workers(
    decision: &mut DecisionBuilder<'_>,
) -> Result<(), Rejection> {
    if decision.control.has_call_to_finish_before_release() || decision.control.idle.is_some() {
        return Err(invalid_state_rejection(decision, "a release"));
    }
    decision
        .record_event(Event::RunWaiting(RunWaiting { wait: WaitReason::Worker, timer: None }))?;
    decision.add_scheduling_update(RunSchedulingUpdate::Release);
    Ok(())
}

pub(super) const fn invalid_state_rejection(
    decision: &DecisionBuilder<'_>,
    input_description: &'static str,
) -> Rejection {
    Rejection::InvalidState {
        input: input_description,
        stage: decision.control.stage.description(),
    }
}
