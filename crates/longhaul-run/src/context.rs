//! The time, the budget, the provider's limit and the random number that a decision depends on.

use longhaul_core::time::Timestamp;
use longhaul_core::usage::RemainingBudget;

/// Context of a decision: the store's time, the remaining budget, the provider's limit and a random
/// number.
#[derive(Debug, Clone, Copy)]
pub struct DecideContext {
    /// Current time according to the store.
    pub now: Timestamp,
    /// Remaining budget, known only after the store has refused an append for lack of budget.
    /// `None` means that the budget is not known to be short.
    pub remaining_budget: Option<RemainingBudget>,
    /// Time until which the provider of the run's model accepts no requests, as learned by any run.
    /// `None` means that no limit is known.
    pub provider_blocked_until: Option<Timestamp>,
    /// Random number for the jitter of a retry delay. 0 means no jitter.
    pub random: u64,
}

impl DecideContext {
    /// Creates a context with this time, an unknown remaining budget and no jitter.
    pub const fn new(now: Timestamp) -> Self {
        Self { now, remaining_budget: None, provider_blocked_until: None, random: 0 }
    }
}
