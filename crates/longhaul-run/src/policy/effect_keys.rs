//! Which tool call holds an effect key (a name for an effect that must happen at most once), and
//! what the end of a call means for its key.
//!
//! Invariant: a key is freed only if its call failed and certainly had no effect.

use longhaul_core::change::RowChange;
use longhaul_core::event::Event;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::effect_key::{
    EffectKeyChange, EffectKeyClaim, EffectKeyHolder, EffectKeyState,
};

use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::ControlState;

/// Returns the row changes that set the final state of the effect keys of the calls that an event
/// ends. `control` is the state before the event.
#[expect(clippy::wildcard_enum_match_arm, reason = "other events end no call")]
pub(crate) fn settled_keys_after(control: &ControlState, event: &Event) -> Vec<RowChange> {
    let update = match event {
        Event::ToolCompleted(ended) => {
            settled_key_of_call(control, ended.call, |_| Some(EffectKeyState::Done))
        }
        Event::ToolFailed(ended) => {
            settled_key_of_call(control, ended.call, |call| state_after_failure(control, call))
        }
        // The call is known to have stopped, but it may have had an effect before.
        Event::ToolInterrupted(ended) => {
            settled_key_of_call(control, ended.call, |_| Some(EffectKeyState::Unknown))
        }
        event if event.is_terminal() => {
            let open = control.calls().iter().filter(|call| !call.is_done());
            let started = open.filter(|call| call.starts > 0);
            return started
                .filter_map(|call| settle_key(control.id, call, Some(EffectKeyState::Unknown)))
                .collect();
        }
        _ => None,
    };
    update.into_iter().collect()
}

/// Returns the row change that sets the final state of the effect key of the call `id`. `state`
/// computes that state, or returns `None` to free the key. Returns `None` if the call has not
/// claimed its key, or was neither started nor answered.
fn settled_key_of_call(
    control: &ControlState,
    id: CallId,
    state: impl FnOnce(&TrackedCall) -> Option<EffectKeyState>,
) -> Option<RowChange> {
    // Nobody has decided about the other call if this one was neither started nor answered.
    let is_decided = |call: &TrackedCall| {
        call.starts > 0 || matches!(call.state, ToolCallState::ResultReady { .. })
    };
    let call = control.call(id).filter(|call| has_claimed(call) && is_decided(call))?;
    settle_key(control.id, call, state(call))
}

/// Returns the new state of the effect key (name of an effect that must happen at most once) of a
/// call that failed. `None` means that the key is freed, because the call certainly had no effect.
fn state_after_failure(control: &ControlState, call: &TrackedCall) -> Option<EffectKeyState> {
    // An earlier start of the call may have had an effect.
    let is_first_start = call.is_running_under_claim(control.driver.epoch) && call.starts == 1;
    let had_no_effect = is_first_start || matches!(call.state, ToolCallState::ResultReady { .. });
    (!had_no_effect).then_some(EffectKeyState::Unknown)
}

/// Returns the row change that sets the final state of a call's effect key (name of an effect that
/// must happen at most once), or that frees the key for other calls if there is no `state`. `None`
/// if the call has no effect key.
fn settle_key(run: RunId, call: &TrackedCall, state: Option<EffectKeyState>) -> Option<RowChange> {
    let claim = effect_key_claim(run, call)?;
    Some(RowChange::UpdateKey(EffectKeyChange::Settle { claim, state }))
}

/// Returns whether the call has claimed its effect key, or is about to replace the claim of another
/// call whose outcome is unknown.
pub(crate) const fn has_claimed(call: &TrackedCall) -> bool {
    call.classification.key.is_some() && (call.starts > 0 || call.replaces.is_some())
}

/// Returns whether the call may hold its effect key: it was started and has not ended, so that calls
/// of other runs with this key may wait for it.
pub(crate) const fn may_hold_effect_key(call: &TrackedCall) -> bool {
    call.classification.key.is_some() && call.starts > 0 && !call.is_done()
}

/// Returns the claim of the call on its effect key (name of an effect that must happen at most
/// once). `None` means that the call has no effect key.
pub(crate) fn effect_key_claim(run: RunId, call: &TrackedCall) -> Option<EffectKeyClaim> {
    let key = call.classification.key.as_ref()?.hash;
    Some(EffectKeyClaim { key, holder: effect_key_holder(run, call), replaces: call.replaces })
}

/// Returns the identity of the call as the holder of an effect key (the key of an effect that happens
/// at most once). A call that a retry took over from the failed run keeps the id of that run.
pub(crate) fn effect_key_holder(run: RunId, call: &TrackedCall) -> EffectKeyHolder {
    let run = call.origin.map_or(run, |origin| origin.run);
    EffectKeyHolder { run, call: call.id }
}
