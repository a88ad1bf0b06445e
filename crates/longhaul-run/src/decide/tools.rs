//! Calls have ended, or a tool has looked after one in doubt.
//!
//! Never: refuses a result because somebody cancelled or wrote meanwhile. What
//! has happened is written down in every state but the end.

use longhaul_core::change::Change;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{Finding, ToolEnded, ToolVerified};
use longhaul_core::id::CallId;
use longhaul_core::time::Millis;

use crate::advance::advance;
use crate::advance::call::time_spent;
use crate::draft::Draft;
use crate::input::{ToolDone, ToolEnd};
use crate::refusal::Refusal;
use crate::state::call::CallState;

pub(super) fn done(draft: &mut Draft<'_>, done: Vec<ToolDone>) -> Result<(), Refusal> {
    let mut active = Millis::ZERO;
    for tool in done {
        if !is_started(draft, tool.call) {
            return Err(Refusal::NoSuchCall(tool.call));
        }
        active = active.plus(tool.active);
        let ended = ToolEnded {
            call: tool.call,
            output: tool.output,
            active: tool.active,
        };
        draft.record(match tool.end {
            ToolEnd::Completed => Event::ToolCompleted(ended),
            ToolEnd::Failed => Event::ToolFailed(ended),
            ToolEnd::Interrupted => Event::ToolInterrupted(ended),
        })?;
        if let Some(blob) = tool.blob {
            draft.change(Change::PutBlob(blob));
        }
    }
    time_spent(draft, active);
    advance(draft)
}

fn is_started(draft: &Draft<'_>, id: CallId) -> bool {
    let mut calls = draft
        .control
        .acting()
        .into_iter()
        .flat_map(|acting| &acting.calls);
    calls.any(|call| call.id == id && matches!(call.state, CallState::Started(_)))
}

pub(super) fn verified(
    draft: &mut Draft<'_>,
    call: CallId,
    finding: Finding,
) -> Result<(), Refusal> {
    draft.record(Event::ToolVerified(ToolVerified { call, finding }))?;
    advance(draft)
}
