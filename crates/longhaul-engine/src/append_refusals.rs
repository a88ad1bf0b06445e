//! Collects the reasons why a store refused to append to a run's journal: exceeded budgets, full
//! trees, reached spend caps and claimed effect keys. The state machine then decides about the same
//! input again, knowing these refusals.

use longhaul_core::change::{JournalBatch, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::policy::budget::BudgetAccount;
use longhaul_core::policy::effect_key::{
    ClaimedEffectKey, EffectKey, EffectKeyChange, EffectKeyClaim, EffectKeyState,
};
use longhaul_core::policy::spend_cap::CapRefusal;
use longhaul_core::raw::Hash;
use longhaul_run::{
    DecisionContext, EffectKeyOfOtherCall, Run, RunInput, output_of_duplicate_call,
};

use crate::drive::truncate::truncate_output_and_get_full_text;
use crate::error::Error;
use crate::recorded_outputs::RecordedToolOutputReader;
use crate::services::EngineServices;

/// Refusals of all appends that were tried for one input of a run's state machine. All are kept,
/// because a decision that avoids only the last refusal could meet an earlier one again.
#[derive(Debug, Default)]
pub(crate) struct AppendRefusals {
    /// Budget account of the run's tree (its root run and all descendants), if an append was
    /// refused because of the budget.
    pub(crate) budget_account: Option<BudgetAccount>,
    /// Number of child runs that may still start, if an append was refused because it started more.
    pub(crate) free_children: Option<usize>,
    cap_refusals: Vec<CapRefusal>,
    keys_claimed_by_other_calls: Vec<EffectKeyOfOtherCall>,
    keys_changed: bool,
}

impl AppendRefusals {
    /// Returns the data for the state machine's next decision, with these refusals added, so that
    /// the decision avoids them.
    pub(crate) fn add_append_refusals_to_context(&self, ctx: DecisionContext) -> DecisionContext {
        DecisionContext {
            budget_account: self.budget_account.or(ctx.budget_account),
            free_children: self.free_children,
            cap_refusals: self.cap_refusals.clone(),
            keys_claimed_by_other_calls: self.keys_claimed_by_other_calls.clone(),
            keys_changed: self.keys_changed,
            ..ctx
        }
    }

    /// Records that the store refused an append because it exceeds a spend cap.
    pub(crate) fn add_cap_refusal(&mut self, refusal: CapRefusal) {
        self.cap_refusals.retain(|earlier| earlier.key != refusal.key);
        self.cap_refusals.push(refusal);
    }

    /// Records that the store refused an append because another tool call has claimed an effect key
    /// (at most one call with the same key takes effect).
    pub(crate) fn add_effect_key_refusal(&mut self, info: EffectKeyOfOtherCall) {
        self.keys_claimed_by_other_calls.retain(|earlier| earlier.key.key != info.key.key);
        self.keys_claimed_by_other_calls.push(info);
    }

    /// Records that the tool call for which the run wanted to wait no longer holds the effect key
    /// (at most one call with the same key takes effect). Forgets the recorded claims of other
    /// calls, which are outdated.
    pub(crate) fn record_effect_key_no_longer_held(&mut self) {
        self.keys_claimed_by_other_calls.clear();
        self.keys_changed = true;
    }
}

/// Outcome of one attempt to append to the journal.
pub(crate) enum AppendAttemptOutcome {
    Committed,
    Conflict,
    /// The budget does not cover the append, or the model must be warned first that little is left.
    /// The value is the budget account of the run's tree (its root run and all descendants).
    OverBudget(BudgetAccount),
    /// The append would start a child run, but the run's tree (its root run and all descendants)
    /// has the maximum number of open runs.
    TreeFull,
    /// What is left of a spend cap does not cover the append.
    OverCap(Box<CapRefusal>),
    /// The append would start a tool call whose effect key another call has claimed. At most one
    /// call with the same key takes effect.
    KeyTaken(ClaimedEffectKey),
    /// The append would make the run wait for another tool call with the same effect key, but that
    /// call no longer holds the key.
    KeyNotHeld,
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
pub(crate) async fn load_other_effect_key_claim(
    services: &EngineServices,
    (run, input): (&Run, &RunInput),
    claims: &[EffectKeyClaim],
    claimed_key: ClaimedEffectKey,
) -> Result<EffectKeyOfOtherCall, Error> {
    let call =
        claims.iter().find(|claim| claim.key == claimed_key.key).map(|claim| claim.holder.call);
    let key = call.and_then(|call| find_effect_key(run, input, call, claimed_key.key));
    let (Some(call), Some(key), EffectKeyState::Done) = (call, key, claimed_key.state) else {
        return Ok(EffectKeyOfOtherCall { key: claimed_key, result: None });
    };
    let outputs = RecordedToolOutputReader::new(services.store.clone(), services.records.clone());
    let recorded =
        outputs.read_tool_output(claimed_key.holder.run, claimed_key.holder.call).await?;
    let text = recorded.and_then(|recorded| recorded.text);
    let result = text.map(|text| {
        let output = output_of_duplicate_call(key, claimed_key.holder, &ToolOutput::text(text));
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
