//! The time and the budget that a decision depends on.

use longhaul_core::time::Timestamp;
use longhaul_core::usage::RemainingBudget;

/// Context of a decision: the store's time and the remaining budget.
#[derive(Debug, Clone, Copy)]
pub struct DecideContext {
    /// Current time according to the store.
    pub now: Timestamp,
    /// Remaining budget, known only after the store has refused an append for lack of budget.
    /// `None` means that the budget is not known to be short.
    pub remaining_budget: Option<RemainingBudget>,
}

impl DecideContext {
    /// Creates a context with this time and an unknown remaining budget.
    pub const fn new(now: Timestamp) -> Self {
        Self { now, remaining_budget: None }
    }
}
