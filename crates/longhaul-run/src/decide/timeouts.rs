//! Records that a timeout of the attempt has passed. The driver then aborts its calls, and the
//! attempt ends when their results are recorded.

use longhaul_core::event::Event;
use longhaul_core::event::run::{RunOverdue, RunTimedOut};
use longhaul_core::time::Millis;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;

/// Records the timeout that has passed, if there is one. `elapsed` is the duration of the work in
/// progress.
pub(super) fn record_passed_timeout(
    decision: &mut DecisionBuilder<'_>,
    elapsed: Millis,
) -> Result<(), Rejection> {
    let active = decision.control.attempt_active().plus(elapsed);
    if decision.control.next_timeout().is_none_or(|next| active < next) {
        return Ok(());
    }
    let retry = decision.control.policy.retry;
    if let Some(hard_timeout) = retry.hard_timeout.filter(|timeout| active >= *timeout) {
        let timed_out = RunTimedOut { active, hard_timeout };
        return decision.record_event(Event::RunTimedOut(timed_out));
    }
    let soft_timeout = retry.soft_timeout.unwrap_or_default();
    decision.record_event(Event::RunOverdue(RunOverdue { active, soft_timeout }))
}
