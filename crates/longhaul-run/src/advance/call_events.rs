//! Small facts about one call that several rooms state.
//!
//! Never: decides whether.

use longhaul_core::change::{Change, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolEnded, ToolOutput, ToolStarted};
use longhaul_core::id::CallId;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::Usage;

use crate::decision::DecisionBuilder;
use crate::policy::control_tool_names::wait_timer;
use crate::rejection::Rejection;
use crate::state::call::Call;

/// Writes down the result of a call that no tool was asked for.
pub(crate) fn record_call_result(
    draft: &mut DecisionBuilder<'_>,
    call: CallId,
    output: ToolOutput,
    is_error: bool,
) -> Result<(), Rejection> {
    let ended = ToolEnded { call, output, active: Millis::ZERO };
    draft.record(if is_error { Event::ToolFailed(ended) } else { Event::ToolCompleted(ended) })
}

/// Begins a call that only waits, and sets its timer.
pub(crate) fn start_wait(
    draft: &mut DecisionBuilder<'_>,
    call: &Call,
    until: Timestamp,
) -> Result<(), Rejection> {
    draft.record(Event::ToolStarted(ToolStarted {
        call: call.id,
        attempt: call.starts + 1,
        until: Some(until),
    }))?;
    draft.wake_at(wait_timer(draft.run.id, call.id), until);
    Ok(())
}

/// Counts the run's own time, without a model.
pub(crate) fn add_active_time(draft: &mut DecisionBuilder<'_>, active: Millis) {
    if active > Millis::ZERO {
        draft.change(Change::AddUsage(UsageRow {
            model: String::new(),
            usage: Usage::default(),
            cost: None,
            turns: 0,
            active,
        }));
    }
}
