//! The account of a tree of runs: held, spent, lost, capped.
//!
//! Never: spent + lost + held above a cap because of a hold.

use longhaul_core::change::Settlement;
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{Budget, Raise};
use longhaul_core::port::shelves::Account;
use longhaul_core::port::store::Refused;
use longhaul_core::usage::{Hold, Left, Micros};
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{amount, nat};
use crate::sqlite::fault::Stop;
use crate::sqlite::tx::Tx;

/// A root gets its account.
pub(crate) fn open(tx: &Tx<'_>, root: RunId, caps: &Budget) -> Result<()> {
    tx.exec(
        "INSERT INTO budget (root, cap_micros, cap_tokens) VALUES (?1, ?2, ?3)",
        params![
            root.bytes(),
            caps.micros.map(|cap| amount(cap.0)),
            caps.tokens.map(amount)
        ],
    )
}

/// Sets a call's worst case aside.
pub(crate) fn hold(tx: &Tx<'_>, run: RunId, hold: Hold) -> Result<(), Stop> {
    let held = tx.run(
        "UPDATE budget SET held_micros = held_micros + ?2, held_tokens = held_tokens + ?3
          WHERE root = (SELECT root FROM run WHERE id = ?1)
            AND (cap_micros IS NULL
                 OR ?2 <= max(cap_micros - spent_micros - lost_micros - held_micros, 0))
            AND (cap_tokens IS NULL
                 OR ?3 <= max(cap_tokens - spent_tokens - lost_tokens - held_tokens, 0))",
        params![run.bytes(), amount(hold.micros.0), amount(hold.tokens)],
    )?;
    if held == 1 {
        return Ok(());
    }
    match account_of(tx, run)? {
        Some(account) => Err(Stop::Refused(Refused::OverBudget(left(&account)))),
        // Its root was forgotten, and with it the account: nothing binds.
        None => Ok(()),
    }
}

/// What was set aside is used, lost or given back.
pub(crate) fn settle(tx: &Tx<'_>, run: RunId, settlement: Settlement) -> Result<()> {
    let Settlement { held, spent, lost } = settlement;
    tx.exec(
        "UPDATE budget
            SET held_micros = max(held_micros - ?2, 0), held_tokens = max(held_tokens - ?3, 0),
                spent_micros = spent_micros + ?4, spent_tokens = spent_tokens + ?5,
                lost_micros = lost_micros + ?6, lost_tokens = lost_tokens + ?7
          WHERE root = (SELECT root FROM run WHERE id = ?1)",
        params![
            run.bytes(),
            amount(held.micros.0),
            amount(held.tokens),
            amount(spent.micros.0),
            amount(spent.tokens),
            amount(lost.micros.0),
            amount(lost.tokens)
        ],
    )
}

/// The caps that `raise` names are put in place.
pub(crate) fn set_cap(tx: &Tx<'_>, run: RunId, raise: Raise) -> Result<()> {
    tx.exec(
        "UPDATE budget
            SET cap_micros = coalesce(?2, cap_micros), cap_tokens = coalesce(?3, cap_tokens)
          WHERE root = (SELECT root FROM run WHERE id = ?1)",
        params![
            run.bytes(),
            raise.micros.map(|cap| amount(cap.0)),
            raise.tokens.map(amount)
        ],
    )
}

const COLUMNS: &str = "cap_micros, cap_tokens, spent_micros, spent_tokens, lost_micros, \
                       lost_tokens, held_micros, held_tokens";

/// The account of a tree.
pub(crate) fn account(tx: &Tx<'_>, root: RunId) -> Result<Option<Account>> {
    let sql = format!("SELECT {COLUMNS} FROM budget WHERE root = ?1");
    tx.one(&sql, params![root.bytes()], read)
}

fn account_of(tx: &Tx<'_>, run: RunId) -> Result<Option<Account>> {
    let sql =
        format!("SELECT {COLUMNS} FROM budget WHERE root = (SELECT root FROM run WHERE id = ?1)");
    tx.one(&sql, params![run.bytes()], read)
}

fn read(row: &Row<'_>) -> Result<Account> {
    let cap = |place| {
        let cap: Option<i64> = row.get(place)?;
        cap.map(|_| nat(row, place)).transpose()
    };
    let pair = |place| {
        Ok::<_, rusqlite::Error>(Hold {
            micros: Micros(nat(row, place)?),
            tokens: nat(row, place + 1)?,
        })
    };
    Ok(Account {
        cap_micros: cap(0)?.map(Micros),
        cap_tokens: cap(1)?,
        spent: pair(2)?,
        lost: pair(4)?,
        held: pair(6)?,
    })
}

fn left(account: &Account) -> Left {
    let Account {
        spent, lost, held, ..
    } = account;
    let used = spent.micros.plus(lost.micros).plus(held.micros);
    let used_tokens = spent.tokens + lost.tokens + held.tokens;
    Left {
        micros: account.cap_micros.map(|cap| cap.minus(used)),
        tokens: account
            .cap_tokens
            .map(|cap| cap.saturating_sub(used_tokens)),
    }
}
