//! The budget of a tree of runs (a root run and its descendants): caps, holds (reserved amounts),
//! spent and lost amounts, and runs that wait until a hold is released.
//!
//! Invariant: a hold never makes the sum of spent, lost and held amounts exceed a cap. The runs of a
//! tree hold amounts in the order of their queue (`BudgetQueue`): a change that removes a run from the
//! queue or releases an amount wakes the next runs in the same transaction.

use longhaul_core::change::{BudgetHold, BudgetHoldSettlement};
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{Budget, BudgetAccount, BudgetRaise};
use longhaul_core::policy::budget_queue::{BudgetQueue, BudgetQueueEntry};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::usage::{BudgetAmount, MicroUsd};
use longhaul_core::wait::WaitKind;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{LEASED, PARKED, READY, amount_to_column, get_u64};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::head::wake_run;
use crate::sqlite::tx::Tx;

/// Creates the budget of a tree of runs (a root run and its descendants), with the caps of the root
/// run.
pub(crate) fn create_budget(tx: &Tx<'_>, root_run: RunId, caps: &Budget) -> Result<()> {
    tx.exec(
        "INSERT INTO budget (root, cap_micro_usd, cap_tokens) VALUES (?1, ?2, ?3)",
        params![
            root_run.bytes(),
            caps.micro_usd.map(|cap| amount_to_column(cap.0)),
            caps.tokens.map(amount_to_column)
        ],
    )
}

/// Reserves the worst-case cost of a model call. Refused if a cap would be exceeded, if runs before
/// this one in the queue need the amount, or if the model must be warned first that a cap is nearly
/// exhausted.
pub(crate) fn hold_budget(tx: &Tx<'_>, run: RunId, hold: BudgetHold) -> Result<(), RowChangeError> {
    let sql = format!(
        "SELECT {COLUMNS}, budget.root, {HAS_QUEUE}, r.root FROM run r
          CROSS JOIN budget ON budget.root = coalesce(r.account, r.root) WHERE r.id = ?1"
    );
    let found = tx.query_one(&sql, params![run.bytes()], |row| {
        let tree = RunId::from_bytes(row.get(10)?);
        Ok((read_budget_account(row)?, row.get(8)?, row.get(9)?, tree))
    })?;
    // The root run and its retries may have been pruned together with their budget. Then no cap
    // applies.
    let Some((account, root, has_queue, tree)) = found else {
        return Ok(());
    };
    let entries = if has_queue { load_budget_queue_entries(tx, root)? } else { Vec::new() };
    let queue = BudgetQueue { account, entries };
    let account = queue.account_seen_by_run(run, tree);
    if !hold.fits_without_warning(&account) {
        return Err(RowChangeError::Refused(AppendRefusalReason::OverBudget(account)));
    }
    tx.run(
        "UPDATE budget SET held_micro_usd = held_micro_usd + ?2, held_tokens = held_tokens + ?3
          WHERE root = ?1",
        params![
            root,
            amount_to_column(hold.amount.micro_usd.0),
            amount_to_column(hold.amount.tokens)
        ],
    )?;
    if queue.contains(run) { remove_run_from_budget_queue(tx, run) } else { Ok(()) }
}

/// Releases a reservation of budget, adds the amounts that were spent or lost (reserved for calls
/// whose result was lost), and wakes the runs that wait for the released amount.
pub(crate) fn settle_budget_hold(
    tx: &Tx<'_>,
    run: RunId,
    settlement: BudgetHoldSettlement,
) -> Result<(), RowChangeError> {
    let BudgetHoldSettlement { held, spent, lost } = settlement;
    let sql = format!(
        "UPDATE budget
            SET held_micro_usd = max(held_micro_usd - ?2, 0),
                held_tokens = max(held_tokens - ?3, 0),
                spent_micro_usd = spent_micro_usd + ?4, spent_tokens = spent_tokens + ?5,
                lost_micro_usd = lost_micro_usd + ?6, lost_tokens = lost_tokens + ?7
          WHERE root = (SELECT coalesce(account, root) FROM run WHERE id = ?1)
         RETURNING root, {HAS_QUEUE}"
    );
    let settled = tx.query_one(
        &sql,
        params![
            run.bytes(),
            amount_to_column(held.micro_usd.0),
            amount_to_column(held.tokens),
            amount_to_column(spent.micro_usd.0),
            amount_to_column(spent.tokens),
            amount_to_column(lost.micro_usd.0),
            amount_to_column(lost.tokens)
        ],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    match settled {
        Some((account, true)) => wake_runs_waiting_for_budget(tx, account),
        Some((_, false)) | None => Ok(()),
    }
}

/// Raises those budget caps of a tree of runs that `raise` contains. A cap is never lowered, and a
/// missing cap stays missing. Does nothing for a child run that is not a chain step, unless
/// `may_be_child` is true: the own caps of a child are only in its journal. All runs that wait for a
/// higher budget of this account are woken and try again.
pub(crate) fn raise_budget_caps(
    tx: &Tx<'_>,
    (run, may_be_child): (RunId, bool),
    raise: BudgetRaise,
) -> Result<(), RowChangeError> {
    let account = tx.query_one(
        "UPDATE budget
            SET cap_micro_usd = max(cap_micro_usd, coalesce(?2, cap_micro_usd)),
                cap_tokens = max(cap_tokens, coalesce(?3, cap_tokens))
           FROM run r
          WHERE r.id = ?1 AND budget.root = coalesce(r.account, r.root)
            AND (?4 OR r.parent IS NULL OR r.chain_step IS NOT NULL)
         RETURNING budget.root",
        params![
            run.bytes(),
            raise.micro_usd.map(|cap| amount_to_column(cap.0)),
            raise.tokens.map(amount_to_column),
            may_be_child
        ],
        |row| row.get(0),
    )?;
    let Some(account): Option<[u8; 16]> = account else {
        return Ok(());
    };
    let waiting: Vec<[u8; 16]> = tx.query_all(
        "SELECT h.run FROM run r CROSS JOIN run_head h ON h.run = r.id
          WHERE (r.root = ?1 OR r.account = ?1) AND h.state = ?2 AND h.reason = ?3",
        params![account, PARKED, WaitKind::Budget.code()],
        |row| row.get(0),
    )?;
    for waiting in waiting {
        wake_run(tx, RunId::from_bytes(waiting))?;
    }
    wake_runs_waiting_for_budget(tx, account)
}

/// Wakes a parked run if the caps of its budget differ from these, on which the decision to park was
/// based.
pub(crate) fn wake_run_if_budget_caps_changed(
    tx: &Tx<'_>,
    run: RunId,
    (micro_usd, tokens): (Option<MicroUsd>, Option<u64>),
) -> Result<(), RowChangeError> {
    let changed = tx.query_one(
        "SELECT 1 FROM run r CROSS JOIN budget b ON b.root = coalesce(r.account, r.root)
          WHERE r.id = ?1 AND (b.cap_micro_usd IS NOT ?2 OR b.cap_tokens IS NOT ?3)",
        params![
            run.bytes(),
            micro_usd.map(|cap| amount_to_column(cap.0)),
            tokens.map(amount_to_column)
        ],
        |_| Ok(()),
    )?;
    if changed.is_some() { wake_run(tx, run) } else { Ok(()) }
}

/// Queues a parked run until the budget covers this amount. A run that is queued already keeps its
/// place. The run is woken at once if no run of its tree (root run and descendants) waits before it
/// and the amount is free by now, because another run has released its reservation since the
/// refusal.
pub(crate) fn queue_run_for_budget(
    tx: &Tx<'_>,
    run: RunId,
    needed: BudgetAmount,
) -> Result<(), RowChangeError> {
    let account = tx.query_one(
        "INSERT INTO budget_wait (run, account, micro_usd, tokens)
         SELECT id, coalesce(account, root), ?2, ?3 FROM run WHERE id = ?1
         ON CONFLICT (run) DO UPDATE SET micro_usd = excluded.micro_usd, tokens = excluded.tokens
         RETURNING account",
        params![run.bytes(), amount_to_column(needed.micro_usd.0), amount_to_column(needed.tokens)],
        |row| row.get(0),
    )?;
    account.map_or(Ok(()), |account| wake_runs_waiting_for_budget(tx, account))
}

/// Removes a run from the queue of its budget, and wakes the runs behind it whose turn it is.
pub(crate) fn remove_run_from_budget_queue(tx: &Tx<'_>, run: RunId) -> Result<(), RowChangeError> {
    let sql = "DELETE FROM budget_wait WHERE run = ?1 RETURNING account";
    let account = tx.query_one(sql, params![run.bytes()], |row| row.get(0))?;
    account.map_or(Ok(()), |account| wake_runs_waiting_for_budget(tx, account))
}

fn wake_runs_waiting_for_budget(tx: &Tx<'_>, root_run: [u8; 16]) -> Result<(), RowChangeError> {
    while let Some(run) =
        load_budget_queue(tx, root_run)?.and_then(|queue| queue.next_run_to_wake())
    {
        wake_run(tx, run)?;
    }
    Ok(())
}

/// Selects the runs in the queue for the budget of a tree of runs, in order. Besides parked runs
/// these are runs that were woken and have not left the queue yet.
pub(crate) const SELECT_QUEUE: &str = "SELECT w.run, w.micro_usd, w.tokens, h.state = ?2, r.root
       FROM budget_wait w CROSS JOIN run_head h ON h.run = w.run CROSS JOIN run r ON r.id = w.run
      WHERE w.account = ?1
        AND (h.state IN (?3, ?4) OR h.state = ?2 AND h.reason = ?5)
      ORDER BY w.position";

/// SQL condition that a run waits for the budget. Most budgets have no queue; then the queue is not
/// read.
const HAS_QUEUE: &str = "EXISTS (SELECT 1 FROM budget_wait w WHERE w.account = budget.root)";

fn load_budget_queue(tx: &Tx<'_>, root: [u8; 16]) -> Result<Option<BudgetQueue>> {
    let sql = format!("SELECT {COLUMNS} FROM budget WHERE root = ?1");
    let Some(account) = tx.query_one(&sql, params![root], read_budget_account)? else {
        return Ok(None);
    };
    Ok(Some(BudgetQueue { account, entries: load_budget_queue_entries(tx, root)? }))
}

fn load_budget_queue_entries(tx: &Tx<'_>, root: [u8; 16]) -> Result<Vec<BudgetQueueEntry>> {
    tx.query_all(
        SELECT_QUEUE,
        params![root, PARKED, READY, LEASED, WaitKind::BudgetHeld.code()],
        |row| {
            Ok(BudgetQueueEntry {
                run: RunId::from_bytes(row.get(0)?),
                root: RunId::from_bytes(row.get(4)?),
                needed: read_budget_amount(row, 1)?,
                is_parked: row.get(3)?,
            })
        },
    )
}

const COLUMNS: &str = "cap_micro_usd, cap_tokens, spent_micro_usd, spent_tokens, lost_micro_usd, \
                       lost_tokens, held_micro_usd, held_tokens";

/// Returns the budget of a root run and its descendants. A retry has the budget of the run that it
/// retries. `None` means that there is no such budget, for example because it was pruned.
pub(crate) fn budget_account_of_root_run(
    tx: &Tx<'_>,
    root: RunId,
) -> Result<Option<BudgetAccount>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM budget
          WHERE root = coalesce((SELECT account FROM run WHERE id = ?1 AND root = ?1), ?1)"
    );
    tx.query_one(&sql, params![root.bytes()], read_budget_account)
}

fn read_budget_account(row: &Row<'_>) -> Result<BudgetAccount> {
    let cap = |column| {
        let cap: Option<i64> = row.get(column)?;
        cap.map(|_| get_u64(row, column)).transpose()
    };
    Ok(BudgetAccount {
        cap_micro_usd: cap(0)?.map(MicroUsd),
        cap_tokens: cap(1)?,
        spent: read_budget_amount(row, 2)?,
        lost: read_budget_amount(row, 4)?,
        held: read_budget_amount(row, 6)?,
    })
}

fn read_budget_amount(row: &Row<'_>, column: usize) -> Result<BudgetAmount> {
    Ok(BudgetAmount {
        micro_usd: MicroUsd(get_u64(row, column)?),
        tokens: get_u64(row, column + 1)?,
    })
}
