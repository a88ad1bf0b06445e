//! Budget accounts of run trees.
//!
//! Invariant: a hold never makes spent, lost and held amounts together exceed a cap.

use longhaul_core::change::BudgetHoldSettlement;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::port::records::BudgetAccount;
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::usage::{BudgetAmount, MicroUsd, RemainingBudget};

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Holds the maximum cost of a call.
    pub(crate) fn hold(&mut self, run: RunId, hold: BudgetAmount) -> ChangeResult {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        let left = remaining(&account);
        if !left.covers(hold) {
            return refuse(AppendRefusalReason::OverBudget(left));
        }
        account.held = plus(account.held, hold);
        self.tables.accounts.insert(root, account);
        Ok(())
    }

    /// Settles a hold: the amount is spent, lost or released.
    pub(crate) fn settle(&mut self, run: RunId, settlement: BudgetHoldSettlement) {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        account.held = minus(account.held, settlement.held);
        account.spent = plus(account.spent, settlement.spent);
        account.lost = plus(account.lost, settlement.lost);
        self.tables.accounts.insert(root, account);
    }

    /// Replaces the caps that `raise` contains.
    pub(crate) fn set_cap(&mut self, run: RunId, raise: BudgetRaise) {
        let root = self.tables.account_root(run);
        let mut account = self.account(root);
        account.cap_micro_usd = raise.micro_usd.or(account.cap_micro_usd);
        account.cap_tokens = raise.tokens.or(account.cap_tokens);
        self.tables.accounts.insert(root, account);
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

fn remaining(account: &BudgetAccount) -> RemainingBudget {
    let used = plus(plus(account.spent, account.lost), account.held);
    RemainingBudget {
        micro_usd: account.cap_micro_usd.map(|cap| cap.minus(used.micro_usd)),
        tokens: account.cap_tokens.map(|cap| cap.saturating_sub(used.tokens)),
    }
}

const fn plus(one: BudgetAmount, other: BudgetAmount) -> BudgetAmount {
    BudgetAmount {
        micro_usd: one.micro_usd.plus(other.micro_usd),
        tokens: one.tokens.saturating_add(other.tokens),
    }
}

const fn minus(one: BudgetAmount, other: BudgetAmount) -> BudgetAmount {
    let micros: MicroUsd = one.micro_usd.minus(other.micro_usd);
    BudgetAmount { micro_usd: micros, tokens: one.tokens.saturating_sub(other.tokens) }
}
