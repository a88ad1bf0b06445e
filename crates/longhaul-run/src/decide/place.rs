//! What does not fit where a run stands, and letting go of it in good order.
//!
//! Never: lets go while something is under way that must not be repeated.

use longhaul_core::change::HeadMove;
use longhaul_core::event::Event;
use longhaul_core::event::run::RunWaiting;
use longhaul_core::status::Wait;

use crate::draft::Draft;
use crate::refusal::Refusal;

/// Lets go in good order. What is under way and must not be repeated has ended before.
pub(super) fn release(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    if draft.control.must_stay() || draft.control.rest.is_some() {
        return Err(out_of_place(draft, "a release"));
    }
    draft.record(Event::RunWaiting(RunWaiting {
        wait: Wait::Worker,
        timer: None,
    }))?;
    draft.head(HeadMove::Release);
    Ok(())
}

pub(super) const fn out_of_place(draft: &Draft<'_>, what: &'static str) -> Refusal {
    Refusal::OutOfPlace {
        what,
        stage: draft.control.stage.word(),
    }
}
