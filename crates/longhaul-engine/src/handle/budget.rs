//! Raises of budgets: which caps a raise changes, and which command raises them.

use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{Budget, BudgetCap, BudgetRaise};
use longhaul_run::commands::RunCommand;
use longhaul_run::explain::{command_to_raise_shared_budget, dollars_text};
use longhaul_run::{Rejection, Run};

use crate::error::Result;
use crate::handle::Longhaul;
use crate::replay::replay_run_state;

impl Longhaul {
    /// Returns the command that resumes a run with higher budget caps. If a child run waits for the
    /// budget of its tree (the root run and all descendants) and the root has ended, the command
    /// raises the budget of the tree.
    ///
    /// # Errors
    ///
    /// A cap is missing or above the new one, or the raise must go through the root of the tree.
    pub(super) async fn resume_and_raise(
        &self,
        run: RunId,
        raise: BudgetRaise,
        by: String,
    ) -> Result<RunCommand> {
        let newest = self.newest_chain_run(run).await?.unwrap_or(run);
        let (folded, _) = replay_run_state(&self.services, newest).await?;
        let resume = |by| RunCommand::Resume { by, raise: Some(raise) };
        // Sending this command to a run that has ended fails with an error that says so.
        if folded.outcome().is_some() {
            return Ok(resume(by));
        }
        let (control, task) = (folded.control(), folded.task());
        let account = self.services.records.budget_account(task.root).await?.unwrap_or_default();
        let raises_shared_cap = raise.micro_usd.is_some() || raise.tokens.is_some();
        let is_at_cap_of_tree =
            task.is_child() && raises_shared_cap && control.budget.is_exhausted_in(&account);
        if is_at_cap_of_tree && !self.has_run_tree_ended(task.root).await? {
            return Err(Rejection::TreeBudgetExhausted(task.root).into());
        }
        let mut caps = control.budget.caps;
        if !task.is_child() || is_at_cap_of_tree {
            let (micro_usd, tokens) = (account.cap_micro_usd, account.cap_tokens);
            caps = Budget { micro_usd, tokens, ..caps };
        }
        check_caps_can_be_raised(&caps, raise)?;
        Ok(match is_at_cap_of_tree {
            true => RunCommand::ResumeAndRaiseTreeBudget { by, raise },
            false => resume(by),
        })
    }

    /// Returns the CLI command that raises the budget of the tree (the root run and all
    /// descendants) through this child run, because the root has ended. `None` if the root is open,
    /// or if the run does not wait for this budget.
    pub(super) async fn raise_budget_command(&self, run: &Run) -> Result<Option<String>> {
        let Some(command) = command_to_raise_shared_budget(run) else { return Ok(None) };
        let has_ended = self.has_run_tree_ended(run.task().root).await?;
        Ok(Some(command).filter(|_| has_ended))
    }

    /// Returns whether the root run of a tree has ended and, if it belongs to a chain, whether the
    /// newest run of the chain has ended.
    async fn has_run_tree_ended(&self, root: RunId) -> Result<bool> {
        let store = &self.services.store;
        let Some(row) = store.get_run(root).await? else { return Ok(true) };
        let newest = match row.chain {
            Some(chain) => store.get_run(chain.current).await?,
            None => Some(row),
        };
        Ok(newest.is_none_or(|row| row.status.is_terminal()))
    }
}

/// Returns an error if a raise would lower a cap or names a cap that does not exist. An equal cap is
/// no error, so that a request can be repeated.
fn check_caps_can_be_raised(caps: &Budget, raise: BudgetRaise) -> Result<(), Rejection> {
    let new_caps = Budget::default().with_replaced_caps(raise);
    for kind in BudgetCap::ALL {
        let Some(new) = new_caps.limit_of_cap(kind) else { continue };
        let cap = kind.name();
        let current = caps.limit_of_cap(kind).ok_or(Rejection::NoCapToRaise(cap))?;
        if new < current {
            let current = match kind {
                BudgetCap::Money => format!("${}", dollars_text(current)),
                BudgetCap::Tokens | BudgetCap::Turns => current.to_string(),
                BudgetCap::ActiveTime => format!("{current} ms"),
            };
            return Err(Rejection::BudgetNotRaised { cap, current });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_names_an_existing_cap_and_does_not_lower_it() {
        let caps = Budget { turns: Some(20), ..Budget::default() };
        let check = |raise: BudgetRaise, expected: &str| {
            let result = check_caps_can_be_raised(&caps, raise);
            assert_eq!(result.err().map_or_else(String::new, |error| error.to_string()), expected);
        };
        let turns = |turns| BudgetRaise { turns: Some(turns), ..BudgetRaise::default() };
        check(turns(20), "");
        check(turns(21), "");
        check(turns(19), "the budget of turns is 20 already, and a raise does not lower it");
        let tokens = BudgetRaise { tokens: Some(5), ..BudgetRaise::default() };
        check(tokens, "the run has no budget of tokens that could be raised");
    }
}
