//! Effect keys: which call has claimed a key, and the runs that wait until the key is settled.
//!
//! Invariant: a key has at most one holder, and only a person deletes the row of a settled key.

use longhaul_core::change::LateToolResult;
use longhaul_core::id::RunId;
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKeyChange, EffectKeyClaim, EffectKeyHolder, EffectKeyState,
};
use longhaul_core::port::store::AppendRefusalReason;

use crate::mem_store::rows::State;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Applies a change of a key that belongs to an append to the journal of this run.
    pub(crate) fn update_effect_key(
        &mut self,
        run: RunId,
        change: EffectKeyChange,
    ) -> ChangeResult {
        match change {
            EffectKeyChange::Claim(claim) => return self.claim_effect_key(run, claim),
            EffectKeyChange::Wait { key, holder } => {
                let held = ClaimedEffectKey { key, holder, state: EffectKeyState::Held };
                if self.tables.effect_keys.get(&key) != Some(&held) {
                    return refuse(AppendRefusalReason::KeyNotHeld);
                }
                self.tables.effect_key_waits.insert((key, run), ());
            }
            EffectKeyChange::Settle { claim, state } => self.settle_effect_key(run, claim, state),
        }
        Ok(())
    }

    /// Frees the key of a call whose outcome is unknown. Returns `false` if the call holds no such
    /// key.
    pub(crate) fn free_effect_key(&mut self, run: RunId, freed: LateToolResult) -> bool {
        let holder = EffectKeyHolder { run, call: freed.call };
        let is_in_doubt = |taken: &ClaimedEffectKey| {
            taken.holder == holder && taken.state == EffectKeyState::Unknown
        };
        let found = self.tables.effect_keys.iter().find(|(_, taken)| is_in_doubt(taken));
        let Some(key) = found.map(|(key, _)| *key) else {
            return false;
        };
        self.tables.effect_keys.remove(&key);
        let row_id = self.tables.next_row_id();
        self.tables.late_results.insert((run, row_id), freed);
        true
    }

    fn claim_effect_key(&mut self, run: RunId, claim: EffectKeyClaim) -> ChangeResult {
        let EffectKeyClaim { key, holder, .. } = claim;
        match self.tables.effect_keys.get(&key) {
            Some(taken) if !claim.may_change_key(taken) => {
                refuse(AppendRefusalReason::KeyTaken(*taken))
            }
            Some(_) | None => {
                let taken = ClaimedEffectKey { key, holder, state: EffectKeyState::Held };
                self.tables.effect_keys.insert(key, taken);
                self.tables.effect_key_waits.remove(&(key, run));
                Ok(())
            }
        }
    }

    fn settle_effect_key(
        &mut self,
        run: RunId,
        claim: EffectKeyClaim,
        state: Option<EffectKeyState>,
    ) {
        let EffectKeyClaim { key, holder, .. } = claim;
        if !self.tables.effect_keys.get(&key).is_some_and(|taken| claim.may_change_key(taken)) {
            return;
        }
        match state {
            None => _ = self.tables.effect_keys.remove(&key),
            Some(state) => {
                let run = if state == EffectKeyState::Done { run } else { holder.run };
                let holder = EffectKeyHolder { run, ..holder };
                self.tables.effect_keys.insert(key, ClaimedEffectKey { key, holder, state });
            }
        }
        let waits =
            self.tables.effect_key_waits.iter().filter(|((waited_key, _), ())| *waited_key == key);
        let waiting: Vec<RunId> = waits.map(|((_, run), ())| *run).collect();
        self.tables.effect_key_waits.remove_where(|(waited_key, _), ()| *waited_key == key);
        for run in waiting {
            let head = self.tables.heads.get(&run);
            if head.is_some_and(|head| matches!(head.state, State::Parked { .. })) {
                self.wake(run);
            }
        }
    }
}
