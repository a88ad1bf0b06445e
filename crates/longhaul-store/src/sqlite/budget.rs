//! The budget of a tree of runs (a root run and its descendants): caps, holds (reserved amounts),
//! spent and lost amounts.
//!
//! Invariant: a hold never makes the sum of spent, lost and held amounts exceed a cap.

use longhaul_core::change::BudgetHoldSettlement;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::port::records::BudgetAccount;
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::usage::{BudgetAmount, MicroUsd, RemainingBudget};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{amount_to_column, get_u64};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::tx::Tx;

/// Creates the budget of a tree of runs (a root run and its descendants), with the caps of the root
/// run.
pub(crate) fn create_budget(tx: &Tx<'_>, root: RunId, caps: &Budget) -> Result<()> {
    tx.exec(
        "INSERT INTO budget (root, cap_micro_usd, cap_tokens) VALUES (?1, ?2, ?3)",
        params![
            root.bytes(),
            caps.micro_usd.map(|cap| amount_to_column(cap.0)),
            caps.tokens.map(amount_to_column)
        ],
    )
}

/// Reserves the worst-case cost of a call. Refused if a cap would be exceeded.
pub(crate) fn hold_budget(
    tx: &Tx<'_>,
    run: RunId,
    hold: BudgetAmount,
) -> Result<(), RowChangeError> {
    let held = tx.run(
        "UPDATE budget SET held_micro_usd = held_micro_usd + ?2, held_tokens = held_tokens + ?3
          WHERE root = (SELECT coalesce(account, root) FROM run WHERE id = ?1)
            AND (cap_micro_usd IS NULL
                 OR ?2 <= max(cap_micro_usd - spent_micro_usd - lost_micro_usd - held_micro_usd, 0))
            AND (cap_tokens IS NULL
                 OR ?3 <= max(cap_tokens - spent_tokens - lost_tokens - held_tokens, 0))",
        params![run.bytes(), amount_to_column(hold.micro_usd.0), amount_to_column(hold.tokens)],
    )?;
    if held == 1 {
        return Ok(());
    }
    match budget_account_of_run(tx, run)? {
        Some(account) => Err(RowChangeError::Refused(AppendRefusalReason::OverBudget(
            remaining_budget(&account),
        ))),
        // The root run and its retries were pruned together with their budget, so no cap applies.
        None => Ok(()),
    }
}

/// Releases a hold and adds the amounts that were spent or lost.
pub(crate) fn settle_budget_hold(
    tx: &Tx<'_>,
    run: RunId,
    settlement: BudgetHoldSettlement,
) -> Result<()> {
    let BudgetHoldSettlement { held, spent, lost } = settlement;
    tx.exec(
        "UPDATE budget
            SET held_micro_usd = max(held_micro_usd - ?2, 0),
                held_tokens = max(held_tokens - ?3, 0),
                spent_micro_usd = spent_micro_usd + ?4, spent_tokens = spent_tokens + ?5,
                lost_micro_usd = lost_micro_usd + ?6, lost_tokens = lost_tokens + ?7
          WHERE root = (SELECT coalesce(account, root) FROM run WHERE id = ?1)",
        params![
            run.bytes(),
            amount_to_column(held.micro_usd.0),
            amount_to_column(held.tokens),
            amount_to_column(spent.micro_usd.0),
            amount_to_column(spent.tokens),
            amount_to_column(lost.micro_usd.0),
            amount_to_column(lost.tokens)
        ],
    )
}

/// Sets the budget caps that `raise` contains. Other caps stay unchanged.
pub(crate) fn set_budget_caps(tx: &Tx<'_>, run: RunId, raise: BudgetRaise) -> Result<()> {
    tx.exec(
        "UPDATE budget
            SET cap_micro_usd = coalesce(?2, cap_micro_usd), cap_tokens = coalesce(?3, cap_tokens)
          WHERE root = (SELECT coalesce(account, root) FROM run WHERE id = ?1)",
        params![
            run.bytes(),
            raise.micro_usd.map(|cap| amount_to_column(cap.0)),
            raise.tokens.map(amount_to_column)
        ],
    )
}

const COLUMNS: &str = "cap_micro_usd, cap_tokens, spent_micro_usd, spent_tokens, lost_micro_usd, \
                       lost_tokens, held_micro_usd, held_tokens";

/// Returns the budget of a root run and its descendants. A retry has the budget of the run that it
/// retries.
pub(crate) fn budget_account_of_tree(tx: &Tx<'_>, root: RunId) -> Result<Option<BudgetAccount>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM budget
          WHERE root = coalesce((SELECT account FROM run WHERE id = ?1 AND root = ?1), ?1)"
    );
    tx.query_one(&sql, params![root.bytes()], read_budget_account)
}

fn budget_account_of_run(tx: &Tx<'_>, run: RunId) -> Result<Option<BudgetAccount>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM budget
          WHERE root = (SELECT coalesce(account, root) FROM run WHERE id = ?1)"
    );
    tx.query_one(&sql, params![run.bytes()], read_budget_account)
}

fn read_budget_account(row: &Row<'_>) -> Result<BudgetAccount> {
    let cap = |column| {
        let cap: Option<i64> = row.get(column)?;
        cap.map(|_| get_u64(row, column)).transpose()
    };
    let pair = |column| {
        Ok::<_, rusqlite::Error>(BudgetAmount {
            micro_usd: MicroUsd(get_u64(row, column)?),
            tokens: get_u64(row, column + 1)?,
        })
    };
    Ok(BudgetAccount {
        cap_micro_usd: cap(0)?.map(MicroUsd),
        cap_tokens: cap(1)?,
        spent: pair(2)?,
        lost: pair(4)?,
        held: pair(6)?,
    })
}

fn remaining_budget(account: &BudgetAccount) -> RemainingBudget {
    let BudgetAccount { spent, lost, held, .. } = account;
    let used = spent.micro_usd.plus(lost.micro_usd).plus(held.micro_usd);
    let used_tokens = spent.tokens + lost.tokens + held.tokens;
    RemainingBudget {
        micro_usd: account.cap_micro_usd.map(|cap| cap.minus(used)),
        tokens: account.cap_tokens.map(|cap| cap.saturating_sub(used_tokens)),
    }
}
