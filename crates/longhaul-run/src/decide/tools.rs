//! Calls have ended, or a tool has looked after one in doubt.
//!
//! Never: refuses a result because somebody cancelled or wrote meanwhile. What
//! has happened is written down in every state but the end.

use longhaul_core::change::Blob;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolEnded, ToolInDoubt, ToolProgress, ToolVerified};
use longhaul_core::id::CallId;
use longhaul_core::time::Millis;

use crate::advance::advance;
use crate::advance::call::time_spent;
use crate::draft::Draft;
use crate::input::{ToolDone, ToolEnd};
use crate::judge::doubt;
use crate::judge::rules::in_doubt;
use crate::refusal::Refusal;
use crate::state::call::CallState;

pub(super) fn done(draft: &mut Draft<'_>, done: Vec<ToolDone>) -> Result<(), Refusal> {
    let mut active = Millis::ZERO;
    for tool in done {
        let is_started = |state: &CallState| matches!(state, CallState::Started(_));
        if !state_of(draft, tool.call, is_started) {
            return Err(Refusal::NoSuchCall(tool.call));
        }
        active = active.plus(tool.active);
        if tool.end == ToolEnd::Unknown {
            doubt(draft, &tool)?;
            continue;
        }
        let ended = ToolEnded {
            call: tool.call,
            output: tool.output,
            active: tool.active,
        };
        draft.record(match tool.end {
            ToolEnd::Completed => Event::ToolCompleted(ended),
            ToolEnd::Failed => Event::ToolFailed(ended),
            ToolEnd::Interrupted | ToolEnd::Unknown => Event::ToolInterrupted(ended),
        })?;
        draft.keep(tool.blobs);
    }
    time_spent(draft, active);
    advance(draft)
}

/// A call under way says how far it is: people read it, and nothing follows. Also
/// while the run is being cancelled: what a call does in somebody's name before it
/// has ended must be read about, and it begins nothing.
pub(super) fn progress(draft: &mut Draft<'_>, progress: ToolProgress) -> Result<(), Refusal> {
    let alive = draft.control.epoch;
    let runs = |state: &CallState| *state == CallState::Started(alive);
    if !state_of(draft, progress.call, runs) {
        return Err(Refusal::NoSuchCall(progress.call));
    }
    draft.record(Event::ToolProgress(progress))
}

/// Its driver lives and still does not know what came of it.
fn doubt(draft: &mut Draft<'_>, tool: &ToolDone) -> Result<(), Refusal> {
    let id = tool.call;
    let mut calls = draft.control.calls().iter();
    let call = calls.find(|call| call.id == id);
    let call = call.ok_or(Refusal::NoSuchCall(id))?;
    let then = in_doubt(&draft.control, &call.appraisal);
    draft.record(Event::ToolInDoubt(ToolInDoubt {
        call: id,
        from: draft.control.epoch,
        then,
        why: doubt::told(&tool.output),
        active: tool.active,
    }))
}

/// Whether this call is being made and its state is as wanted.
fn state_of(draft: &Draft<'_>, id: CallId, wanted: impl Fn(&CallState) -> bool) -> bool {
    let mut calls = draft.control.calls().iter();
    calls.any(|call| call.id == id && wanted(&call.state))
}

pub(super) fn verified(
    draft: &mut Draft<'_>,
    seen: ToolVerified,
    blobs: Vec<Blob>,
) -> Result<(), Refusal> {
    let call = seen.call;
    let doubtful = state_of(draft, call, |state| {
        matches!(state, CallState::Doubtful { .. })
    });
    // A result that surfaced meanwhile is better than a look, and a run that is
    // being cancelled needs neither.
    let is_known = state_of(draft, call, |_| true);
    if !is_known {
        return Err(Refusal::NoSuchCall(call));
    }
    if doubtful && draft.control.cancel.is_none() {
        draft.record(Event::ToolVerified(seen))?;
        draft.keep(blobs);
    }
    advance(draft)
}
