//! Claims the effect key of a call in the append that starts or continues the call, and handles calls
//! whose key another call has claimed.
//!
//! Invariant: a call with a key starts or continues only in an append that claims the key.

use longhaul_core::change::Change;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolKeyTaken, ToolOutput};
use longhaul_core::policy::effect_key::{EffectKey, KeyChange, KeyHolder, KeyState, TakenKey};

use crate::advance::call_events::record_call_result;
use crate::context::TakenKeyInfo;
use crate::decision::DecisionBuilder;
use crate::policy::effect_keys::{has_claimed, key_claim, key_holder};
use crate::policy::rules::in_doubt_policy;
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedToolCall};

/// Beginning of the output of a call that was not made, because another call with the same key has
/// completed.
const DUPLICATE_NOTE: &str = "[longhaul] This call was not made: ";

/// Text that stands for a result that was deleted.
const LOST_RESULT: &str = "(the result is no longer stored)";

/// Returns whether the call may try to claim its effect key now. If it waits for another call with
/// this key, it may if that call no longer holds the key, or if a new driver has claimed the run.
pub(super) fn may_claim_again(decision: &DecisionBuilder<'_>, call: &TrackedToolCall) -> bool {
    let ToolCallState::AwaitingKey { holder, epoch } = call.state else {
        return true;
    };
    let is_held = |taken: &TakenKeyInfo| {
        let TakenKey { holder: by, state, .. } = taken.key;
        by == holder && state == KeyState::Held
    };
    epoch < decision.control.epoch
        || decision.ctx.keys_changed && !decision.ctx.taken_keys.iter().any(is_held)
}

/// Handles a call whose key is known to be claimed by another call: the call waits, gets the result of
/// the other call, or is in doubt like the other call. Returns `false` if the call may claim its key.
pub(super) fn handle_taken_key(
    decision: &mut DecisionBuilder<'_>,
    call: &TrackedToolCall,
) -> Result<bool, Rejection> {
    let Some(key) = &call.classification.key else {
        return Ok(false);
    };
    if let Some((holder, output)) = completed_in_same_reply(decision, call, key) {
        record_key_held_by_other_call(decision, call, (holder, KeyState::Done))?;
        record_call_result(decision, call.id, duplicate_output(key, holder, &output), false)?;
        return Ok(true);
    }
    let own = key_holder(decision.run.id, call);
    let taken = decision.ctx.taken_keys.iter().find(|taken| {
        let TakenKey { key: hash, holder, .. } = taken.key;
        hash == key.hash && holder != own
    });
    let Some(TakenKeyInfo { key: taken, result }) = taken.cloned() else {
        return Ok(false);
    };
    let TakenKey { holder, state, .. } = taken;
    let is_replaced = call.replaces == Some(holder) && call.state == ToolCallState::Ready;
    if state == KeyState::Unknown && is_replaced {
        return Ok(false);
    }
    record_key_held_by_other_call(decision, call, (holder, state))?;
    if state == KeyState::Done {
        let (output, blob) = match result {
            Some((output, blob)) => (output, blob),
            None => (duplicate_output(key, holder, &missing_result_output()), None),
        };
        record_call_result(decision, call.id, output, false)?;
        decision.add_blob_changes(blob.into_iter().collect());
    }
    Ok(true)
}

fn record_key_held_by_other_call(
    decision: &mut DecisionBuilder<'_>,
    call: &TrackedToolCall,
    (holder, state): (KeyHolder, KeyState),
) -> Result<(), Rejection> {
    let is_unknown = state == KeyState::Unknown;
    let in_doubt = is_unknown.then(|| in_doubt_policy(&decision.control, &call.classification));
    decision.record_event(Event::ToolKeyTaken(ToolKeyTaken {
        call: call.id,
        holder,
        state,
        in_doubt,
    }))
}

/// Returns the earlier call of the same reply that has claimed the key and has completed, with its
/// output. The result may be part of this decision, so that no journal contains it yet.
fn completed_in_same_reply(
    decision: &DecisionBuilder<'_>,
    call: &TrackedToolCall,
    key: &EffectKey,
) -> Option<(KeyHolder, ToolOutput)> {
    let mut calls = decision.control.calls().iter();
    calls.find_map(|other| {
        let has_key = other.id != call.id && has_claimed(other) && other.has_key(key.hash);
        if let ToolCallState::Done { output, is_error: false } = &other.state
            && has_key
        {
            return Some((KeyHolder { run: decision.run.id, call: other.id }, output.clone()));
        }
        None
    })
}

/// Returns the output of a call that was not made, because another call with the same key has
/// completed with this output. The texts are kept and the images are not.
pub fn duplicate_output(key: &EffectKey, holder: KeyHolder, output: &ToolOutput) -> ToolOutput {
    let KeyHolder { run, call } = holder;
    // The note is one paragraph, so that the result begins after the first empty line.
    let key = key.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = format!(
        "{DUPLICATE_NOTE}the call {call} of {run} has the same key `{key}` and has completed. Its \
         result:\n\n{}",
        output.joined_text()
    );
    ToolOutput { full: output.full, ..ToolOutput::text(text) }
}

/// Returns the result within the text of the output of a call that was not made, because another call
/// with the same key has completed. `None` means that the result is no longer stored.
pub fn result_of_duplicate(text: String) -> Option<String> {
    // A long result that a call of the same reply has stored has no note.
    let result = match text.strip_prefix(DUPLICATE_NOTE) {
        Some(rest) => rest.split_once("\n\n")?.1.to_owned(),
        None => text,
    };
    (result != LOST_RESULT).then_some(result)
}

/// Returns the output to show in place of the result of a completed call that is no longer stored.
fn missing_result_output() -> ToolOutput {
    ToolOutput::text(LOST_RESULT)
}

/// Adds the claim of a call's key to the batch that starts or continues the call. A call that is
/// continued usually holds its key; in the retry of a failed run it claims the key again.
pub(super) fn claim_key(decision: &mut DecisionBuilder<'_>, call: &TrackedToolCall) {
    if let Some(claim) = key_claim(decision.run.id, call) {
        decision.add_row_change(Change::UpdateKey(KeyChange::Claim(claim)));
    }
}

/// Registers the run to be woken when the effect keys that its calls wait for change. Returns the
/// holder of the first of these keys. `None` means that no call waits for a key.
pub(super) fn wait_for_keys(decision: &mut DecisionBuilder<'_>) -> Option<KeyHolder> {
    let waits = decision.control.calls().iter().filter_map(|call| {
        let ToolCallState::AwaitingKey { holder, .. } = call.state else {
            return None;
        };
        Some((call.classification.key.as_ref()?.hash, holder))
    });
    let waits: Vec<_> = waits.collect();
    for (key, holder) in &waits {
        let wait = KeyChange::Wait { key: *key, holder: *holder };
        decision.add_row_change(Change::UpdateKey(wait));
    }
    waits.first().map(|(_, holder)| *holder)
}
