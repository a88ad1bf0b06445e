//! Small facts about one call that several rooms state.
//!
//! Never: decides whether.

use longhaul_core::change::{Change, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolEnded, ToolOutput, ToolStarted};
use longhaul_core::id::CallId;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::Usage;

use crate::draft::Draft;
use crate::judge::names::wait_timer;
use crate::refusal::Refusal;
use crate::state::call::Call;

/// Writes down the result of a call that no tool was asked for.
pub(crate) fn conclude_call(
    draft: &mut Draft<'_>,
    call: CallId,
    output: ToolOutput,
    is_error: bool,
) -> Result<(), Refusal> {
    let ended = ToolEnded {
        call,
        output,
        active: Millis::ZERO,
    };
    draft.record(if is_error {
        Event::ToolFailed(ended)
    } else {
        Event::ToolCompleted(ended)
    })
}

/// Begins a call that only waits, and sets its timer.
pub(crate) fn start_wait(
    draft: &mut Draft<'_>,
    call: &Call,
    until: Timestamp,
) -> Result<(), Refusal> {
    draft.record(Event::ToolStarted(ToolStarted {
        call: call.id,
        attempt: call.starts + 1,
        until: Some(until),
    }))?;
    draft.wake_at(wait_timer(draft.run.id, call.id), until);
    Ok(())
}

/// Counts the run's own time, without a model.
pub(crate) fn time_spent(draft: &mut Draft<'_>, active: Millis) {
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
