//! Budget accounts of run trees, and runs that wait until a hold is released.
//!
//! Invariant: a hold never makes spent, lost and held amounts together exceed a cap.

use longhaul_core::change::{BudgetHold, BudgetHoldSettlement};
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{BudgetAccount, BudgetRaise, raised_cap};
use longhaul_core::policy::budget_queue::{BudgetQueue, BudgetQueueEntry};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::usage::{BudgetAmount, MicroUsd};
use longhaul_core::wait::WaitKind;

use crate::mem_store::rows::{State, Tables};
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Holds the maximum cost of a call, unless runs that wait need the amount.
    pub(crate) fn hold(&mut self, run: RunId, hold: BudgetHold) -> ChangeResult {
        let root = self.tables.account_root(run);
        let queue = self.tables.budget_queue(root);
        let tree = self.tables.heads.get(&run).map_or(run, |head| head.task.root);
        let account = queue.account_seen_by_run(run, tree);
        if !hold.fits_without_warning(&account) {
            return refuse(AppendRefusalReason::OverBudget(account));
        }
        let held = queue.account.held.plus(hold.amount);
        self.tables.accounts.insert(root, BudgetAccount { held, ..queue.account });
        self.remove_run_from_budget_queue(run);
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

    pub(crate) fn is_child(&self, run: RunId) -> bool {
        self.tables.heads.get(&run).is_none_or(|head| head.task.is_child())
    }

    /// Raises the caps that `raise` contains, and wakes the runs of the account that wait for a higher
    /// budget. A cap is never lowered.
    pub(crate) fn raise_caps(&mut self, run: RunId, raise: BudgetRaise) {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        account.cap_micro_usd = raised_cap(account.cap_micro_usd, raise.micro_usd);
        account.cap_tokens = raised_cap(account.cap_tokens, raise.tokens);
        self.tables.accounts.insert(root, account);
        let is_waiting = |state: &State| state.is_parked_for(WaitKind::Budget);
        let heads = self.tables.heads.iter();
        let waiting = heads.filter(|(_, head)| is_waiting(&head.state)).map(|(run, _)| *run);
        let waiting: Vec<RunId> =
            waiting.filter(|run| self.tables.account_root(*run) == root).collect();
        waiting.into_iter().for_each(|run| self.wake(run));
        self.wake_budget_waits(root);
    }

    /// Wakes a parked run if the caps of its budget differ from these.
    pub(crate) fn wake_run_if_budget_caps_changed(
        &mut self,
        run: RunId,
        caps: (Option<MicroUsd>, Option<u64>),
    ) {
        let account = self.account(self.tables.account_root(run));
        if (account.cap_micro_usd, account.cap_tokens) != caps {
            self.wake(run);
        }
    }

    /// Queues a parked run until the budget covers this amount, or wakes it if it is its turn. A run
    /// that is queued already keeps its place.
    pub(crate) fn queue_run_for_budget(&mut self, run: RunId, needed: BudgetAmount) {
        let row_id = self.tables.budget_place(run);
        let row_id = row_id.unwrap_or_else(|| self.tables.next_row_id());
        self.tables.budget_waits.insert(row_id, (run, needed));
        self.wake_budget_waits(self.tables.account_root(run));
    }

    /// Removes a run from the queue of its budget, and wakes the runs behind it whose turn it is.
    pub(crate) fn remove_run_from_budget_queue(&mut self, run: RunId) {
        if let Some(row_id) = self.tables.budget_place(run) {
            self.tables.budget_waits.remove(&row_id);
            self.wake_budget_waits(self.tables.account_root(run));
        }
    }

    fn wake_budget_waits(&mut self, root: RunId) {
        while let Some(run) = self.tables.budget_queue(root).next_run_to_wake() {
            self.wake(run);
        }
    }

    fn account(&self, root: RunId) -> BudgetAccount {
        self.tables.accounts.get(&root).copied().unwrap_or_default()
    }
}

impl Tables {
    fn budget_place(&self, run: RunId) -> Option<u64> {
        let mut waits = self.budget_waits.iter();
        waits.find(|(_, (queued_run, _))| *queued_run == run).map(|(row_id, _)| *row_id)
    }

    /// Returns the queue of an account. A run counts only while it is ready, claimed, or waits for
    /// the budget.
    pub(crate) fn budget_queue(&self, root: RunId) -> BudgetQueue {
        let waits = self.budget_waits.iter().map(|(_, wait)| *wait);
        let waits = waits.filter(|(run, _)| self.account_root(*run) == root);
        let entries = waits.filter_map(|(run, needed)| {
            let head = self.heads.get(&run)?;
            let is_parked = match head.state {
                State::Ready | State::Leased(_) => false,
                State::Parked { .. } if head.state.is_parked_for(WaitKind::BudgetHeld) => true,
                State::Parked { .. } | State::LaneWait | State::Paused | State::Ended { .. } => {
                    return None;
                }
            };
            Some(BudgetQueueEntry { run, root: head.task.root, needed, is_parked })
        });
        let account = self.accounts.get(&root).copied().unwrap_or_default();
        BudgetQueue { account, entries: entries.collect() }
    }

    /// Returns the budget account of a root run and its descendants.
    pub(crate) fn account_of_tree(&self, root: RunId) -> Option<BudgetAccount> {
        let is_root = self.heads.get(&root).is_none_or(|head| head.task.root == root);
        let account = is_root.then(|| self.account_root(root))?;
        self.accounts.get(&account).copied()
    }

    /// Returns the root under which the budget account of a run is stored. A retry or a fork and its
    /// descendants use the account of the first run that it goes back to.
    pub(crate) fn account_root(&self, run: RunId) -> RunId {
        let root = self.heads.get(&run).map_or(run, |head| head.task.root);
        let head = self.heads.get(&root);
        head.and_then(|head| head.task.earlier_account()).unwrap_or(root)
    }
}
