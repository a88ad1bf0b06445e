//! When something is decided, and what is known of the account then.
//!
//! Never: reads a clock.

use longhaul_core::time::Timestamp;
use longhaul_core::usage::RemainingBudget;

/// When an input is decided, and what a store said of the account.
#[derive(Debug, Clone, Copy)]
pub struct DecideContext {
    /// The store's time.
    pub now: Timestamp,
    /// What is left of the account, after an append was refused for it.
    pub remaining_budget: Option<RemainingBudget>,
}

impl DecideContext {
    /// This point in time, and nothing known of the account.
    pub const fn new(now: Timestamp) -> Self {
        Self { now, remaining_budget: None }
    }
}
