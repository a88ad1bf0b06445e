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
use crate::advance::call_events::add_active_time;
use crate::decision::DecisionBuilder;
use crate::input::{ToolCallResult, ToolCallStatus};
use crate::policy::in_doubt;
use crate::policy::rules::in_doubt_policy;
use crate::rejection::Rejection;
use crate::state::call::CallState;

pub(super) fn record_results(
    draft: &mut DecisionBuilder<'_>,
    done: Vec<ToolCallResult>,
) -> Result<(), Rejection> {
    let mut active = Millis::ZERO;
    for tool in done {
        let is_started = |state: &CallState| matches!(state, CallState::Started(_));
        if !has_state(draft, tool.call, is_started) {
            return Err(Rejection::CallNotRunning(tool.call));
        }
        active = active.plus(tool.active);
        if tool.status == ToolCallStatus::Unknown {
            record_in_doubt(draft, &tool)?;
            continue;
        }
        let ended = ToolEnded { call: tool.call, output: tool.output, active: tool.active };
        draft.record(match tool.status {
            ToolCallStatus::Completed => Event::ToolCompleted(ended),
            ToolCallStatus::Failed => Event::ToolFailed(ended),
            ToolCallStatus::Interrupted | ToolCallStatus::Unknown => Event::ToolInterrupted(ended),
        })?;
        draft.put_blobs(tool.blobs);
    }
    add_active_time(draft, active);
    advance(draft)
}

/// A call under way says how far it is: people read it, and nothing follows. Also
/// while the run is being cancelled: what a call does in somebody's name before it
/// has ended must be read about, and it begins nothing.
pub(super) fn record_progress(
    draft: &mut DecisionBuilder<'_>,
    progress: ToolProgress,
) -> Result<(), Rejection> {
    let alive = draft.control.epoch;
    let runs = |state: &CallState| *state == CallState::Started(alive);
    if !has_state(draft, progress.call, runs) {
        return Err(Rejection::CallNotRunning(progress.call));
    }
    draft.record(Event::ToolProgress(progress))
}

/// Its driver lives and still does not know what came of it.
fn record_in_doubt(
    draft: &mut DecisionBuilder<'_>,
    tool: &ToolCallResult,
) -> Result<(), Rejection> {
    let id = tool.call;
    let mut calls = draft.control.calls().iter();
    let call = calls.find(|call| call.id == id);
    let call = call.ok_or(Rejection::CallNotRunning(id))?;
    let then = in_doubt_policy(&draft.control, &call.classification);
    draft.record(Event::ToolInDoubt(ToolInDoubt {
        call: id,
        epoch: draft.control.epoch,
        policy: then,
        reason: in_doubt::reason_from_output(&tool.output),
        active: tool.active,
    }))
}

/// Whether this call is being made and its state is as wanted.
fn has_state(draft: &DecisionBuilder<'_>, id: CallId, wanted: impl Fn(&CallState) -> bool) -> bool {
    let mut calls = draft.control.calls().iter();
    calls.any(|call| call.id == id && wanted(&call.state))
}

pub(super) fn record_verification(
    draft: &mut DecisionBuilder<'_>,
    seen: ToolVerified,
    blobs: Vec<Blob>,
) -> Result<(), Rejection> {
    let call = seen.call;
    let doubtful = has_state(draft, call, |state| matches!(state, CallState::InDoubt { .. }));
    // A result that surfaced meanwhile is better than a look, and a run that is
    // being cancelled needs neither.
    let is_known = has_state(draft, call, |_| true);
    if !is_known {
        return Err(Rejection::CallNotRunning(call));
    }
    if doubtful && draft.control.cancel.is_none() {
        draft.record(Event::ToolVerified(seen))?;
        draft.put_blobs(blobs);
    }
    advance(draft)
}
