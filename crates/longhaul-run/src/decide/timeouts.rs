//! Records that a timeout of the attempt has passed, or that the run's active time (time that
//! workers spend on it) is used up. The worker then aborts its calls, and the attempt ends or the
//! run parks when their results are recorded.

use longhaul_core::event::Event;
use longhaul_core::event::environment::BudgetReached;
use longhaul_core::event::run::{RunOverdue, RunTimedOut};
use longhaul_core::policy::budget::BudgetCap;
use longhaul_core::time::Millis;

use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;

/// Records the timeout that has passed, or else that the budget of active time is used up. `elapsed`
/// is the duration of the work in progress.
pub(super) fn record_passed_timeout(
    decision: &mut DecisionBuilder<'_>,
    elapsed: Millis,
) -> Result<(), Rejection> {
    let active = decision.control.attempt_active().plus(elapsed);
    if decision.control.active_time_of_next_timeout().is_none_or(|next| active < next) {
        let is_used_up =
            decision.control.remaining_active_time().is_some_and(|remaining| elapsed >= remaining);
        return match is_used_up {
            true => decision
                .record_event(Event::BudgetReached(BudgetReached::of_run(BudgetCap::ActiveTime))),
            false => Ok(()),
        };
    }
    let retry = decision.control.policy.retry;
    if let Some(hard_timeout) = retry.hard_timeout.filter(|timeout| active >= *timeout) {
        let timed_out = RunTimedOut { active, hard_timeout };
        return decision.record_event(Event::RunTimedOut(timed_out));
    }
    let soft_timeout = retry.soft_timeout.unwrap_or_default();
    decision.record_event(Event::RunOverdue(RunOverdue { active, soft_timeout }))
}
