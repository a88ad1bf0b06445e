//! Claims the effect key of a tool call (a name for an effect that must happen at most once) in the
//! transaction that starts or continues the call, and handles calls whose key another call has
//! claimed.
//!
//! Invariant: a call with a key starts or continues only in a transaction that claims the key.

use longhaul_core::change::RowChange;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolKeyTaken, ToolOutput};
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKey, EffectKeyChange, EffectKeyHolder, EffectKeyState,
};

use crate::advance::call_events::record_call_result;
use crate::decision::{Decision, EffectKeyOfOtherCall, RecordResult};
use crate::policy::effect_keys::{effect_key_claim, effect_key_holder, has_claimed};
use crate::policy::rules::in_doubt_policy;
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedCall};

/// Beginning of the output of a tool call that was not made, because another call with the same
/// effect key has completed.
const DUPLICATE_NOTE: &str = "[longhaul] This call was not made: ";

/// Text shown in place of the result of a completed tool call whose result was deleted.
const LOST_RESULT: &str = "(the result is no longer stored)";

/// Returns whether the tool call may try to claim its effect key now. A call that waits for another
/// call with this key may try again if that call no longer holds the key, or if the run was claimed
/// again since.
pub(super) fn may_claim_key(decision: &Decision<'_>, call: &TrackedCall) -> bool {
    let ToolCallState::AwaitingKey { holder, epoch } = call.state else { return true };
    let is_held = |other: &EffectKeyOfOtherCall| {
        let ClaimedEffectKey { holder: by, state, .. } = other.key;
        by == holder && state == EffectKeyState::Held
    };
    epoch < decision.control.driver.epoch
        || decision.ctx.keys_changed
            && !decision.ctx.keys_claimed_by_other_calls.iter().any(is_held)
}

/// Handles a tool call whose effect key another call may have claimed. If one has, the call waits,
/// gets the result of that call, or becomes in doubt (its outcome counts as unknown), and `true` is
/// returned. `false` means that the call may claim its key.
pub(super) fn handle_claimed_key(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
) -> Result<bool, Rejection> {
    let Some(key) = &call.classification.key else { return Ok(false) };
    if let Some((holder, output)) = completed_call_with_key(decision, call, key) {
        record_taken_key(decision, call, (holder, EffectKeyState::Done))?;
        record_call_result(decision, call.id, duplicate_output(key, holder, &output), false)?;
        return Ok(true);
    }
    let own_holder = effect_key_holder(decision.run.id, call);
    let claimed = decision.ctx.keys_claimed_by_other_calls.iter().find(|claimed| {
        let ClaimedEffectKey { key: hash, holder, .. } = claimed.key;
        hash == key.hash && holder != own_holder
    });
    let Some(EffectKeyOfOtherCall { key: claimed, result }) = claimed.cloned() else {
        return Ok(false);
    };
    let ClaimedEffectKey { holder, state, .. } = claimed;
    let is_replaced = call.replaces == Some(holder) && call.state == ToolCallState::Ready;
    if state == EffectKeyState::Unknown && is_replaced {
        return Ok(false);
    }
    record_taken_key(decision, call, (holder, state))?;
    if state == EffectKeyState::Done {
        let (output, blob) = result.unwrap_or_else(|| (ToolOutput::text(LOST_RESULT), None));
        record_call_result(decision, call.id, duplicate_output(key, holder, &output), false)?;
        decision.add_blob_changes(blob.into_iter().collect());
    }
    Ok(true)
}

fn record_taken_key(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
    (holder, state): (EffectKeyHolder, EffectKeyState),
) -> RecordResult {
    let is_unknown = state == EffectKeyState::Unknown;
    let in_doubt = is_unknown.then(|| in_doubt_policy(&decision.control, &call.classification));
    let taken = ToolKeyTaken { call: call.id, holder, state, in_doubt };
    decision.record_event(Event::ToolKeyTaken(taken))
}

/// Returns the completed call of the same reply that has claimed the effect key `key`, with its
/// output. `None` if there is none. Its result may be part of the current decision, which is not in
/// the journal yet.
fn completed_call_with_key(
    decision: &Decision<'_>,
    call: &TrackedCall,
    key: &EffectKey,
) -> Option<(EffectKeyHolder, ToolOutput)> {
    let mut calls = decision.control.calls().iter();
    calls.find_map(|other| {
        let has_effect_key =
            other.id != call.id && has_claimed(other) && other.has_effect_key(key.hash);
        if let ToolCallState::Done { output, is_error: false } = &other.state
            && has_effect_key
        {
            return Some((
                EffectKeyHolder { run: decision.run.id, call: other.id },
                output.clone(),
            ));
        }
        None
    })
}

/// Returns the output for a tool call that was not made, because the call `holder` with the same
/// effect key has completed with `output`. The texts of `output` are kept, its images are not.
fn duplicate_output(key: &EffectKey, holder: EffectKeyHolder, output: &ToolOutput) -> ToolOutput {
    let EffectKeyHolder { run, call } = holder;
    // The note is one paragraph, so that the result begins after the first empty line.
    let key = key.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = format!(
        "{DUPLICATE_NOTE}the call {call} of {run} has the same effect key `{key}` and has completed. Its \
         result:\n\n{}",
        output.joined_text()
    );
    ToolOutput { full: output.full, ..ToolOutput::text(text) }
}

/// Extracts the result of a completed call from the output text of a later call that was not made,
/// because it has the same effect key. `None` means that the result is no longer stored.
pub fn original_result(text: String) -> Option<String> {
    // A long result that a call of the same reply has stored has no note.
    let result = match text.strip_prefix(DUPLICATE_NOTE) {
        Some(rest) => rest.split_once("\n\n")?.1.to_owned(),
        None => text,
    };
    (result != LOST_RESULT).then_some(result)
}

/// Adds the claim of a tool call's effect key to the batch of events that starts or continues the
/// call. A continued call usually holds its key already, but in the retry of a failed run it claims
/// it again.
pub(super) fn claim_key(decision: &mut Decision<'_>, call: &TrackedCall) {
    if let Some(claim) = effect_key_claim(decision.run.id, call) {
        decision.add_row_change(RowChange::UpdateKey(EffectKeyChange::Claim(claim)));
    }
}

/// Registers the run to be woken when a call ends that holds an effect key for which calls of this
/// run wait. Returns the call that holds the first of these keys. `None` means that no call waits
/// for a key.
pub(super) fn wait_for_keys(decision: &mut Decision<'_>) -> Option<EffectKeyHolder> {
    let waits = decision.control.calls().iter().filter_map(|call| {
        let ToolCallState::AwaitingKey { holder, .. } = call.state else { return None };
        Some((call.classification.key.as_ref()?.hash, holder))
    });
    let waits: Vec<_> = waits.collect();
    for (key, holder) in &waits {
        let wait = EffectKeyChange::Wait { key: *key, holder: *holder };
        decision.add_row_change(RowChange::UpdateKey(wait));
    }
    waits.first().map(|(_, holder)| *holder)
}
