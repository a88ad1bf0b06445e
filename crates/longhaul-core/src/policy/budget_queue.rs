//! The queue of runs that wait until other runs release what they hold (reserve) of a budget.
//!
//! Invariant: the runs of a tree hold budget in the order in which they began to wait. What a run
//! in the queue needs is not available to the runs of its tree behind it or outside the queue.

use crate::id::RunId;
use crate::policy::budget::BudgetAccount;
use crate::usage::BudgetAmount;

/// A budget account with the queue of the runs that wait for it, including runs that were woken but
/// have not yet held (reserved) the amount that they need.
#[derive(Debug, Clone, Default)]
pub struct BudgetQueue {
    /// Budget account that the runs in the queue share.
    pub account: BudgetAccount,
    /// Runs in the queue, in the order in which they began to wait.
    pub entries: Vec<BudgetQueueEntry>,
}

/// A run in the queue of a budget account.
#[derive(Debug, Clone, Copy)]
pub struct BudgetQueueEntry {
    /// Run that waits for budget.
    pub run: RunId,
    /// Root run of the tree that the run belongs to.
    pub root: RunId,
    /// Money and tokens that the run needs for its next model request.
    pub needed: BudgetAmount,
    /// Whether the run is still parked. If not, it was woken and can hold (reserve) the amount it
    /// needs.
    pub is_parked: bool,
}

impl BudgetQueue {
    /// Returns the budget account that applies to a run of the tree with this root. What earlier runs
    /// of the same tree in the queue need counts as held (reserved). What runs of other trees need, for
    /// example child runs that a failed run has kept, does not count: perhaps no process drives them.
    pub fn account_seen_by_run(&self, run: RunId, root: RunId) -> BudgetAccount {
        let before = self.entries.iter().take_while(|entry| entry.run != run);
        let entries_of_tree = before.filter(|entry| entry.root == root);
        let needed = entries_of_tree.map(|entry| entry.needed);
        let held = needed.fold(self.account.held, BudgetAmount::plus);
        BudgetAccount { held, ..self.account }
    }

    /// Returns the next run to wake: the first parked run for which the account covers the amount it
    /// needs, or can never cover it because too much was spent. `None` means that no run is woken.
    pub fn next_run_to_wake(&self) -> Option<RunId> {
        let mut parked = self.entries.iter().filter(|entry| entry.is_parked);
        let next = parked.find(|entry| {
            let account = self.account_seen_by_run(entry.run, entry.root);
            account.unreserved_budget().covers(entry.needed)
                || !account.unspent_budget().covers(entry.needed)
        });
        next.map(|entry| entry.run)
    }

    pub fn contains(&self, run: RunId) -> bool {
        self.entries.iter().any(|entry| entry.run == run)
    }
}
