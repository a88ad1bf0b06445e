//! Outcomes of appends to a run's journal. After a refusal by the store, the state machine decides
//! about the same input again, knowing all refusals so far.

use longhaul_core::change::{JournalBatch, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKey, EffectKeyChange, EffectKeyClaim, EffectKeyState,
};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::raw::Hash;
use longhaul_run::{EffectKeyOfOtherCall, Run, RunInput, duplicate_call_output};

use crate::drive::truncate::truncate_output_and_get_full_text;
use crate::error::Result;
use crate::services::Services;
use crate::tools::recorded_outputs::OutputReader;

/// Outcome of one attempt to append to the journal.
pub(crate) enum AppendAttempt {
    Committed,
    Conflict,
    /// The store refused the append for a reason that the next decision avoids.
    Refused(AppendRefusalReason),
    Fenced,
}

/// Returns the number of child runs that a batch of journal events starts.
pub(crate) fn count_new_children(batch: &JournalBatch) -> usize {
    batch.events.iter().filter(|event| matches!(event, Event::ChildStarted(_))).count()
}

/// Returns the effect keys that a batch of row changes claims, each with the tool call that claims
/// it.
pub(crate) fn effect_key_claims(batch: &JournalBatch) -> Vec<EffectKeyClaim> {
    let claims = batch.changes.iter().filter_map(|change| {
        if let RowChange::UpdateKey(EffectKeyChange::Claim(claim)) = change {
            return Some(*claim);
        }
        None
    });
    claims.collect()
}

/// Returns which tool call has claimed an effect key that another call needs, for the state
/// machine. If the claiming call has completed, its result is read from the journal of its run.
pub(crate) async fn load_other_claim(
    services: &Services,
    (run, input): (&Run, &RunInput),
    claims: &[EffectKeyClaim],
    claimed_key: ClaimedEffectKey,
) -> Result<EffectKeyOfOtherCall> {
    let call =
        claims.iter().find(|claim| claim.key == claimed_key.key).map(|claim| claim.holder.call);
    let key = call.and_then(|call| find_effect_key(run, input, call, claimed_key.key));
    let (Some(call), Some(key), EffectKeyState::Done) = (call, key, claimed_key.state) else {
        return Ok(EffectKeyOfOtherCall { key: claimed_key, result: None });
    };
    let outputs = OutputReader::new(services.store.clone(), services.records.clone());
    let recorded =
        outputs.read_tool_output(claimed_key.holder.run, claimed_key.holder.call).await?;
    let text = recorded.and_then(|recorded| recorded.text);
    let result = text.map(|text| {
        let output = duplicate_call_output(key, claimed_key.holder, &ToolOutput::text(text));
        truncate_output_and_get_full_text(call, output)
    });
    Ok(EffectKeyOfOtherCall { key: claimed_key, result })
}

/// Returns the effect key of a tool call: from the calls in `input` if it is a new model reply,
/// otherwise from the state of the run. `None` if no such key is found.
fn find_effect_key<'a>(
    run: &'a Run,
    input: &'a RunInput,
    call: CallId,
    hash: Hash,
) -> Option<&'a EffectKey> {
    if let RunInput::ModelReplied(reply) = input {
        let mut keys = reply.calls.iter().filter_map(|call| call.key.as_ref());
        return keys.find(|key| key.hash == hash);
    }
    run.effect_key_of_call(Some(call))
}
