//! The account of a tree of runs: held, spent, lost, capped.
//!
//! Never: spent + lost + held above a cap because of a hold.

use longhaul_core::change::Settlement;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::port::records::BudgetAccount;
use longhaul_core::port::store::Refused;
use longhaul_core::usage::{Hold, MicroUsd, RemainingBudget};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{amount, get_u64};
use crate::sqlite::error::ChangeError;
use crate::sqlite::tx::Tx;

/// A root gets its account.
pub(crate) fn open(tx: &Tx<'_>, root: RunId, caps: &Budget) -> Result<()> {
    tx.exec(
        "INSERT INTO budget (root, cap_micro_usd, cap_tokens) VALUES (?1, ?2, ?3)",
        params![root.bytes(), caps.micro_usd.map(|cap| amount(cap.0)), caps.tokens.map(amount)],
    )
}

/// Sets a call's worst case aside.
pub(crate) fn hold(tx: &Tx<'_>, run: RunId, hold: Hold) -> Result<(), ChangeError> {
    let held = tx.run(
        "UPDATE budget SET held_micro_usd = held_micro_usd + ?2, held_tokens = held_tokens + ?3
          WHERE root = (SELECT root FROM run WHERE id = ?1)
            AND (cap_micro_usd IS NULL
                 OR ?2 <= max(cap_micro_usd - spent_micro_usd - lost_micro_usd - held_micro_usd, 0))
            AND (cap_tokens IS NULL
                 OR ?3 <= max(cap_tokens - spent_tokens - lost_tokens - held_tokens, 0))",
        params![run.bytes(), amount(hold.micro_usd.0), amount(hold.tokens)],
    )?;
    if held == 1 {
        return Ok(());
    }
    match account_of(tx, run)? {
        Some(account) => Err(ChangeError::Refused(Refused::OverBudget(remaining(&account)))),
        // Its root was forgotten, and with it the account: nothing binds.
        None => Ok(()),
    }
}

/// What was set aside is used, lost or given back.
pub(crate) fn settle(tx: &Tx<'_>, run: RunId, settlement: Settlement) -> Result<()> {
    let Settlement { held, spent, lost } = settlement;
    tx.exec(
        "UPDATE budget
            SET held_micro_usd = max(held_micro_usd - ?2, 0),
                held_tokens = max(held_tokens - ?3, 0),
                spent_micro_usd = spent_micro_usd + ?4, spent_tokens = spent_tokens + ?5,
                lost_micro_usd = lost_micro_usd + ?6, lost_tokens = lost_tokens + ?7
          WHERE root = (SELECT root FROM run WHERE id = ?1)",
        params![
            run.bytes(),
            amount(held.micro_usd.0),
            amount(held.tokens),
            amount(spent.micro_usd.0),
            amount(spent.tokens),
            amount(lost.micro_usd.0),
            amount(lost.tokens)
        ],
    )
}

/// The caps that `raise` names are put in place.
pub(crate) fn set_cap(tx: &Tx<'_>, run: RunId, raise: BudgetRaise) -> Result<()> {
    tx.exec(
        "UPDATE budget
            SET cap_micro_usd = coalesce(?2, cap_micro_usd), cap_tokens = coalesce(?3, cap_tokens)
          WHERE root = (SELECT root FROM run WHERE id = ?1)",
        params![run.bytes(), raise.micro_usd.map(|cap| amount(cap.0)), raise.tokens.map(amount)],
    )
}

const COLUMNS: &str = "cap_micro_usd, cap_tokens, spent_micro_usd, spent_tokens, lost_micro_usd, \
                       lost_tokens, held_micro_usd, held_tokens";

/// The account of a tree.
pub(crate) fn account(tx: &Tx<'_>, root: RunId) -> Result<Option<BudgetAccount>> {
    let sql = format!("SELECT {COLUMNS} FROM budget WHERE root = ?1");
    tx.one(&sql, params![root.bytes()], read)
}

fn account_of(tx: &Tx<'_>, run: RunId) -> Result<Option<BudgetAccount>> {
    let sql =
        format!("SELECT {COLUMNS} FROM budget WHERE root = (SELECT root FROM run WHERE id = ?1)");
    tx.one(&sql, params![run.bytes()], read)
}

fn read(row: &Row<'_>) -> Result<BudgetAccount> {
    let cap = |place| {
        let cap: Option<i64> = row.get(place)?;
        cap.map(|_| get_u64(row, place)).transpose()
    };
    let pair = |place| {
        Ok::<_, rusqlite::Error>(Hold {
            micro_usd: MicroUsd(get_u64(row, place)?),
            tokens: get_u64(row, place + 1)?,
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

fn remaining(account: &BudgetAccount) -> RemainingBudget {
    let BudgetAccount { spent, lost, held, .. } = account;
    let used = spent.micro_usd.plus(lost.micro_usd).plus(held.micro_usd);
    let used_tokens = spent.tokens + lost.tokens + held.tokens;
    RemainingBudget {
        micro_usd: account.cap_micro_usd.map(|cap| cap.minus(used)),
        tokens: account.cap_tokens.map(|cap| cap.saturating_sub(used_tokens)),
    }
}
