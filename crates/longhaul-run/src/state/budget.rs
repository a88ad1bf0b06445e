//! Budget caps of a run, what it has used of them, and the cap that it has reached.

use longhaul_core::event::environment::BudgetReached;
use longhaul_core::policy::budget::{Budget, BudgetAccount, BudgetCap, BudgetRaise};
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd, Usage};
use serde::{Deserialize, Serialize};

/// Budget caps of a run and the state of its warnings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetState {
    /// Current budget caps of the run, including raises.
    pub caps: Budget,
    /// Caps about which the model was warned.
    pub(crate) warned: Vec<BudgetCap>,
    /// Cap that was exhausted. A cap of the whole tree of runs may have been raised since through
    /// another run. `None` means that no cap is exhausted.
    pub(crate) exhausted: Option<BudgetReached>,
}

/// Resources that a run has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Tokens that the run has used so far.
    pub usage: Usage,
    /// Total cost of the run so far, without calls whose price is unknown.
    pub cost: MicroUsd,
    /// Whether the cost of at least one model call is unknown.
    pub unpriced: bool,
    /// Total time that workers have spent on the run, between claim and park.
    pub active: Millis,
    /// Budget reserved for the model call that is running.
    pub held: BudgetAmount,
    /// Budget reserved for model calls whose result was lost in a crash.
    pub lost: BudgetAmount,
}

impl UsageTotals {
    /// Adds the usage of a model call that has ended. `cost` is `None` if it is unknown.
    pub(crate) fn add_call(&mut self, usage: Usage, cost: Option<MicroUsd>, active: Millis) {
        self.usage = self.usage.plus(usage);
        self.cost = self.cost.plus(cost.unwrap_or_default());
        self.unpriced |= cost.is_none();
        self.add_active(active);
        self.held = BudgetAmount::default();
    }

    pub(crate) const fn add_active(&mut self, active: Millis) {
        self.active = self.active.plus(active);
    }
}

impl BudgetState {
    /// Returns the exhausted cap and its value when it was exhausted, if it is a cap of the budget
    /// that the run shares with other runs. It may have been raised through another run since.
    pub fn exhausted_shared_cap(&self) -> Option<(BudgetCap, u64)> {
        self.exhausted.and_then(|reached| Some((reached.cap, reached.tree_cap?)))
    }

    /// Returns whether a cap of this budget account is recorded as exhausted and was not raised
    /// since.
    pub fn is_exhausted_in(&self, account: &BudgetAccount) -> bool {
        let exhausted = self.exhausted_shared_cap();
        exhausted.is_some_and(|(cap, value)| account.limit_of_cap(cap) == Some(value))
    }

    /// Returns whether the budget of active time is used up, so that the work in progress must be
    /// aborted.
    pub fn is_active_time_used_up(&self) -> bool {
        self.exhausted.is_some_and(|reached| reached.cap == BudgetCap::ActiveTime)
    }

    pub(crate) fn raise(&mut self, raise: BudgetRaise) {
        let (before, after) = (self.caps, self.caps.with_raised_caps(raise));
        self.caps = after;
        self.warned.retain(|cap| before.limit_of_cap(*cap) == after.limit_of_cap(*cap));
        self.clear_exhausted_own_cap();
    }

    /// Clears the exhausted cap if it is a cap of this run alone, so that the run tries again. For
    /// a cap of the budget shared with other runs, the run compares the cap's current value with
    /// the exhausted one instead.
    pub(crate) fn clear_exhausted_own_cap(&mut self) {
        self.exhausted = self.exhausted.filter(|reached| reached.tree_cap.is_some());
    }

    /// Clears an exhausted cap of the shared budget, which was raised, perhaps through another run.
    pub(crate) fn clear_exhausted_shared_cap(&mut self) {
        if let Some((raised, _)) = self.exhausted_shared_cap() {
            self.warned.retain(|cap| *cap != raised);
            self.exhausted = None;
        }
    }
}
