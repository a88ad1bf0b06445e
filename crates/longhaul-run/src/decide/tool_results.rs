//! Records the results of tool calls, and of checks whether calls in doubt (outcome unknown) have
//! taken effect.
//!
//! Invariant: a result is recorded in every state of a run that has not ended, even if the run was
//! cancelled or interrupted in the meantime.

use longhaul_core::change::Blob;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolEnded, ToolInDoubt, ToolProgress, ToolVerified};
use longhaul_core::id::CallId;
use longhaul_core::time::Millis;

use crate::advance::advance_run;
use crate::advance::call_events::add_active_time;
use crate::advance::suspension::{
    record_given_up_call, record_interrupted_poll, record_suspended_call, withdraw_question_gate,
};
use crate::decision::{Decision, RecordResult};
use crate::input::{ToolCallResult, ToolCallStatus};
use crate::policy::in_doubt;
use crate::policy::rules::in_doubt_policy;
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedCall};

pub(super) fn record_tool_results(
    decision: &mut Decision<'_>,
    results: Vec<ToolCallResult>,
) -> RecordResult {
    let mut active = Millis::ZERO;
    for tool in results {
        let is_started = |state: &ToolCallState| matches!(state, ToolCallState::Started(_));
        // The tool was told to cancel the call, even if the reason has been withdrawn since.
        let current_epoch = decision.control.driver.epoch;
        let suspended = decision.control.call(tool.call).filter(|call| {
            call.suspended.is_some()
                && !call.is_running_under_claim(current_epoch)
                && tool.status == ToolCallStatus::Interrupted
        });
        let is_cancelled = suspended.is_some_and(TrackedCall::must_cancel_remote);
        let reason = suspended.and_then(TrackedCall::give_up_reason);
        let give_up_text = reason.map(|reason| format!("{reason}; {}", tool.output.joined_text()));
        if suspended.is_some() && !is_cancelled {
            // A result has arrived in the meantime.
            continue;
        }
        if !is_cancelled && !has_call_in_state(decision, tool.call, is_started) {
            return Err(Rejection::CallNotRunning(tool.call));
        }
        active = active.plus(tool.active);
        if let Some(text) = give_up_text {
            withdraw_question_gate(decision, tool.call)?;
            record_given_up_call(decision, text, (tool.call, tool.active))?;
            continue;
        }
        let ended = ToolEnded { call: tool.call, output: tool.output, active: tool.active };
        let call = decision.control.call(tool.call);
        let has_remote_work = call.is_some_and(TrackedCall::must_cancel_remote);
        let event = match tool.status {
            // Dropping the request to the tool has not stopped the work of the other system.
            ToolCallStatus::Interrupted if !is_cancelled && has_remote_work => {
                record_interrupted_poll(decision, (tool.call, tool.active))?;
                continue;
            }
            ToolCallStatus::Completed => Event::ToolCompleted(ended),
            ToolCallStatus::Failed => Event::ToolFailed(ended),
            ToolCallStatus::Interrupted => Event::ToolInterrupted(ended),
            ToolCallStatus::Unknown => {
                record_call_in_doubt(decision, &ended)?;
                continue;
            }
            ToolCallStatus::Suspended(suspended) => {
                record_suspended_call(decision, *suspended, (tool.call, tool.active))?;
                continue;
            }
        };
        withdraw_question_gate(decision, tool.call)?;
        decision.record_event(event)?;
        decision.add_blob_changes(tool.blobs);
    }
    add_active_time(decision, active);
    advance_run(decision)
}

/// Records a progress report of a running tool call. Such a report is only for people and does not
/// change the run's state. It is accepted during a cancel too, because the call's actions must stay
/// visible until the call has ended.
pub(super) fn record_progress(decision: &mut Decision<'_>, progress: ToolProgress) -> RecordResult {
    let current_epoch = decision.control.driver.epoch;
    let runs = |state: &ToolCallState| *state == ToolCallState::Started(current_epoch);
    if !has_call_in_state(decision, progress.call, runs) {
        return Err(Rejection::CallNotRunning(progress.call));
    }
    decision.record_event(Event::ToolProgress(progress))
}

/// Records that the outcome of a tool call is unknown although the worker that ran it is alive.
fn record_call_in_doubt(decision: &mut Decision<'_>, tool: &ToolEnded) -> RecordResult {
    let id = tool.call;
    let call = decision.control.call(id).ok_or(Rejection::CallNotRunning(id))?;
    let policy = in_doubt_policy(&decision.control, &call.classification);
    decision.record_event(Event::ToolInDoubt(ToolInDoubt {
        call: id,
        epoch: decision.control.driver.epoch,
        policy,
        reason: in_doubt::reason_from_output(&tool.output),
        active: tool.active,
    }))
}

/// Returns whether the current reply has a call with this id whose state matches `predicate`.
fn has_call_in_state(
    decision: &Decision<'_>,
    id: CallId,
    predicate: impl Fn(&ToolCallState) -> bool,
) -> bool {
    decision.control.call(id).is_some_and(|call| predicate(&call.state))
}

pub(super) fn record_tool_verification(
    decision: &mut Decision<'_>,
    verification: ToolVerified,
    blobs: Vec<Blob>,
) -> RecordResult {
    let call = verification.call;
    let tracked = decision.control.call(call).ok_or(Rejection::CallNotRunning(call))?;
    let is_in_doubt = matches!(tracked.state, ToolCallState::InDoubt { .. });
    // A result that has arrived in the meantime takes precedence over the verification. A run that
    // is being cancelled needs neither.
    if is_in_doubt && decision.control.stop.cancel.is_none() {
        decision.record_event(Event::ToolVerified(verification))?;
        decision.add_blob_changes(blobs);
    }
    advance_run(decision)
}
