//! What the state machine must know about an append that the store refused, to decide about the same
//! input again.

use longhaul_core::change::{JournalBatch, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKeyChange, EffectKeyClaim, EffectKeyState,
};
use longhaul_core::port::store::StoreError;
use longhaul_run::EffectKeyOfOtherCall;

use crate::drive::truncate::truncate_output_and_get_full_text;
use crate::services::Services;
use crate::tools::recorded_outputs::OutputReader;

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
    claims: &[EffectKeyClaim],
    key: ClaimedEffectKey,
) -> Result<EffectKeyOfOtherCall, StoreError> {
    let claim = claims.iter().find(|claim| claim.key == key.key);
    let (Some(claim), EffectKeyState::Done) = (claim, key.state) else {
        return Ok(EffectKeyOfOtherCall { key, result: None });
    };
    let outputs = OutputReader::new(services.store.clone(), services.records.clone());
    let recorded = outputs.read_tool_output(key.holder.run, key.holder.call).await?;
    let result = recorded
        .and_then(|recorded| recorded.text)
        .map(|text| truncate_output_and_get_full_text(claim.holder.call, ToolOutput::text(text)));
    Ok(EffectKeyOfOtherCall { key, result })
}
