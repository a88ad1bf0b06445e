//! What does not fit where a run stands, and letting go of it in good order.
//!
//! Never: lets go while something is under way that must not be repeated.

use longhaul_core::change::HeadUpdate;
use longhaul_core::event::Event;
use longhaul_core::event::run::RunWaiting;
use longhaul_core::status::Wait;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;

/// Lets go in good order. What is under way and must not be repeated has ended before.
pub(super) fn release(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    if draft.control.has_unrepeatable_work() || draft.control.idle.is_some() {
        return Err(invalid_state(draft, "a release"));
    }
    draft.record(Event::RunWaiting(RunWaiting { wait: Wait::Worker, timer: None }))?;
    draft.set_head(HeadUpdate::Release);
    Ok(())
}

pub(super) const fn invalid_state(draft: &DecisionBuilder<'_>, what: &'static str) -> Rejection {
    Rejection::InvalidState { what, stage: draft.control.stage.description() }
}
