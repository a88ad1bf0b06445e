//! The queue of runs that wait until other runs release what they hold of a budget.
//!
//! Invariant: runs hold budget in the order in which they began to wait. What a run in the queue
//! needs is not available to the runs behind it, nor to runs outside the queue.

use crate::id::RunId;
use crate::policy::budget::BudgetAccount;
use crate::usage::BudgetAmount;

/// A budget account, and the runs that wait for it or were woken and have not held their amount yet.
#[derive(Debug, Clone, Default)]
pub struct BudgetQueue {
    /// The account that the runs share.
    pub account: BudgetAccount,
    /// The runs in the order in which they began to wait.
    pub entries: Vec<BudgetQueueEntry>,
}

/// A run in the queue of a budget account.
#[derive(Debug, Clone, Copy)]
pub struct BudgetQueueEntry {
    /// The run.
    pub run: RunId,
    /// Amount that the run needs.
    pub needed: BudgetAmount,
    /// Whether the run is still parked. If not, it was woken and can hold its amount.
    pub is_parked: bool,
}

impl BudgetQueue {
    /// Returns the account as it is for this run: what the runs before it need counts as held.
    pub fn account_for(&self, run: RunId) -> BudgetAccount {
        let before = self.entries.iter().take_while(|entry| entry.run != run);
        before.fold(self.account, BudgetQueueEntry::count_as_held)
    }

    /// Returns the next run to wake: the first parked one, if its amount fits, or can no longer fit
    /// because too much was spent.
    pub fn next_to_wake(&self) -> Option<RunId> {
        let next = self.entries.iter().find(|entry| entry.is_parked)?;
        let account = self.account_for(next.run);
        let must_wait =
            !account.free().covers(next.needed) && account.unspent().covers(next.needed);
        (!must_wait).then_some(next.run)
    }

    /// Returns whether the run has an entry.
    pub fn contains(&self, run: RunId) -> bool {
        self.entries.iter().any(|entry| entry.run == run)
    }
}

impl BudgetQueueEntry {
    fn count_as_held(account: BudgetAccount, entry: &Self) -> BudgetAccount {
        BudgetAccount { held: account.held.plus(entry.needed), ..account }
    }
}
