//! The time, the budget, the spend caps, whether the provider accepts requests, the effect keys,
//! revoked votes and the random number that a decision depends on.

use longhaul_core::change::Blob;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::budget::BudgetAccount;
use longhaul_core::policy::effect_key::ClaimedEffectKey;
use longhaul_core::policy::spend_cap::{CapRefusal, CapWithWindow};
use longhaul_core::time::Timestamp;

/// Context of a decision: the store's time, what is known about the budget, the spend caps, whether
/// the provider accepts requests, the effect keys and revoked votes, and a random number.
#[derive(Debug, Clone)]
pub struct DecisionContext {
    /// Current time according to the store.
    pub now: Timestamp,
    /// Budget account of the run's tree (root run and descendants), known only after the store has
    /// refused a reservation. `None` means that the budget is not known to be short.
    pub budget_account: Option<BudgetAccount>,
    /// Number of further child runs that the run's tree (root run and descendants) may start, known
    /// only after the store has refused a start. `None` means that the limit of open runs is not
    /// known to be reached.
    pub free_children: Option<usize>,
    /// Time until which the provider of the run's model accepts no requests, as learned by any run.
    /// `None` means that no limit is known.
    pub provider_blocked_until: Option<Timestamp>,
    /// Spend caps from the configuration, each with its current time window.
    pub caps: Vec<CapWithWindow>,
    /// Spend caps because of which the store refused earlier decisions about the same input.
    pub cap_refusals: Vec<CapRefusal>,
    /// Effect keys (names of effects that must happen at most once) that other tool calls have
    /// claimed, as found in the store.
    pub keys_claimed_by_other_calls: Vec<EffectKeyOfOtherCall>,
    /// Whether the store refused an earlier decision about the same input: a tool call was to wait
    /// for another call with the same effect key, but that call no longer holds the key.
    pub keys_changed: bool,
    /// Indices of the recorded answers of the gate being answered that no longer count, because
    /// the keys of their authors were revoked.
    pub revoked_votes: Vec<usize>,
    /// Random number for the jitter of a retry delay. 0 means no jitter.
    pub random: u64,
}

/// An effect key (name of an effect that must happen at most once) that another call has claimed.
#[derive(Debug, Clone)]
pub struct EffectKeyOfOtherCall {
    /// The key, the call that has claimed it, and its state.
    pub key: ClaimedEffectKey,
    /// Output of the first call, if it has completed, and the blob that the output refers to.
    /// `None` if the first call has no stored result.
    pub result: Option<(ToolOutput, Option<Blob>)>,
}

impl DecisionContext {
    /// Adds what is left of a spend cap because of which the store has refused a decision.
    pub fn add_cap_refusal(&mut self, refusal: CapRefusal) {
        self.cap_refusals.retain(|earlier| earlier.key != refusal.key);
        self.cap_refusals.push(refusal);
    }

    /// Adds an effect key that another call has claimed, because of which the store has refused a
    /// decision.
    pub fn add_taken_key(&mut self, taken: EffectKeyOfOtherCall) {
        self.keys_claimed_by_other_calls.retain(|earlier| earlier.key.key != taken.key.key);
        self.keys_claimed_by_other_calls.push(taken);
    }

    /// Forgets the claims of other calls, which are outdated: the store has refused a decision to
    /// wait for one of these calls.
    pub fn forget_taken_keys(&mut self) {
        self.keys_claimed_by_other_calls.clear();
        self.keys_changed = true;
    }

    /// Creates a context with this time, an unknown budget, no spend caps and no jitter.
    pub const fn new(now: Timestamp) -> Self {
        Self {
            now,
            budget_account: None,
            free_children: None,
            provider_blocked_until: None,
            caps: Vec::new(),
            cap_refusals: Vec::new(),
            keys_claimed_by_other_calls: Vec::new(),
            keys_changed: false,
            revoked_votes: Vec::new(),
            random: 0,
        }
    }
}
