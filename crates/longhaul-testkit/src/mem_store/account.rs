//! Budget accounts of run trees, and runs that wait until a hold is released.
//!
//! Invariant: a hold never makes spent, lost and held amounts together exceed a cap.

use longhaul_core::change::{BudgetHold, BudgetHoldSettlement};
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{BudgetAccount, BudgetRaise};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::usage::BudgetAmount;

use crate::mem_store::rows::{State, Tables};
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Holds the maximum cost of a call.
    pub(crate) fn hold(&mut self, run: RunId, hold: BudgetHold) -> ChangeResult {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        if !hold.fits(&account) {
            return refuse(AppendRefusalReason::OverBudget(account));
        }
        account.held = account.held.plus(hold.amount);
        self.tables.accounts.insert(root, account);
        Ok(())
    }

    /// Settles a hold: the amount is spent, lost or released. Wakes runs that wait for it.
    pub(crate) fn settle(&mut self, run: RunId, settlement: BudgetHoldSettlement) {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        account.held = account.held.minus(settlement.held);
        account.spent = account.spent.plus(settlement.spent);
        account.lost = account.lost.plus(settlement.lost);
        self.tables.accounts.insert(root, account);
        self.wake_budget_waits(root);
    }

    /// Replaces the caps that `raise` contains. A child run never lowers a cap of its tree.
    pub(crate) fn set_cap(&mut self, run: RunId, raise: BudgetRaise) {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        let is_child = self.tables.heads.get(&run).is_some_and(|head| head.task.parent.is_some());
        let (micro_usd, tokens) = (account.cap_micro_usd, account.cap_tokens);
        (account.cap_micro_usd, account.cap_tokens) = match is_child {
            true => (
                micro_usd.map(|cap| raise.micro_usd.map_or(cap, |new| new.max(cap))),
                tokens.map(|cap| raise.tokens.map_or(cap, |new| new.max(cap))),
            ),
            false => (raise.micro_usd.or(micro_usd), raise.tokens.or(tokens)),
        };
        self.tables.accounts.insert(root, account);
        self.wake_budget_waits(root);
    }

    /// Queues a parked run until the budget covers this amount, or wakes it if it does by now.
    pub(crate) fn wait_for_holds(&mut self, run: RunId, needed: BudgetAmount) {
        self.tables.budget_waits.insert(run, needed);
        self.wake_budget_waits(self.tables.account_root(run));
    }

    fn wake_budget_waits(&mut self, root: RunId) {
        let mut account = self.account(root);
        let waits = self.tables.budget_waits.iter();
        let waits = waits.filter(|(run, _)| self.tables.account_root(**run) == root);
        let waits: Vec<(RunId, BudgetAmount)> =
            waits.map(|(run, needed)| (*run, *needed)).collect();
        for (run, needed) in waits {
            let head = self.tables.heads.get(&run);
            let is_waiting = head.is_some_and(|head| {
                matches!(head.state, State::Parked { reason: "budget_held", .. })
            });
            let can_wait = !account.free().covers(needed) && account.unspent().covers(needed);
            if is_waiting && can_wait {
                continue;
            }
            self.tables.budget_waits.remove(&run);
            if is_waiting {
                self.wake(run);
                account.held = account.held.plus(needed);
            }
        }
    }

    fn account(&self, root: RunId) -> BudgetAccount {
        self.tables.accounts.get(&root).copied().unwrap_or_default()
    }
}

impl Tables {
    /// Returns the budget account of a root run and its descendants.
    pub(crate) fn account_of_tree(&self, root: RunId) -> Option<BudgetAccount> {
        let is_root = self.heads.get(&root).is_none_or(|head| head.task.root == root);
        let account = is_root.then(|| self.account_root(root))?;
        self.accounts.get(&account).copied()
    }

    /// Returns the root under which the budget account of a run is stored. A retry and its
    /// descendants use the account of the first run that the retry goes back to.
    pub(crate) fn account_root(&self, run: RunId) -> RunId {
        let root = self.heads.get(&run).map_or(run, |head| head.task.root);
        let retried = self.heads.get(&root).and_then(|head| head.task.retry_of);
        retried.map_or(root, |retried| retried.first_run())
    }
}
