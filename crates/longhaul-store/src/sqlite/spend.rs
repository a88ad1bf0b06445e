//! Counts of spend caps: the amounts that are spent, lost and reserved in each time window, and the
//! runs that wait until the amount that they need fits into the rest of a cap's limit.
//!
//! Invariant: a reservation never makes the sum of spent, lost and reserved amounts exceed the
//! limit.

use std::sync::LazyLock;

use longhaul_core::id::{RunId, TimerId};
use longhaul_core::policy::spend_cap::{
    CAP_SWEEP_WAKES_MAX, CAP_WAKES_MAX, CapCounterKey, CapCounterRow, CapHold, CapLimitChange,
    CapReservation, CapSettlement, CapWaitRow, SPEND_ROWS_MAX,
};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::wait::WaitKind;
use rusqlite::{Result, Row, params};

use crate::sqlite::column::{PARKED, amount_to_column, get_time, get_u64, limit_to_column};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::tx::Tx;

const COLUMNS: &str = "s.cap, s.subject, s.window_start, s.window_end, s.cap_limit, \
                       s.raised_limit, s.spent, s.lost, s.held";

/// SQL condition that the run of a `spend_wait` row is still parked because of the spend cap.
static RUN_WAITS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "EXISTS (SELECT 1 FROM run_head h WHERE h.run = w.run
                    AND h.state = ?1 AND h.reason = '{}')",
        WaitKind::Cap.code()
    )
});

/// Reserves an amount in each of these spend caps. Refused if an amount does not fit into the rest
/// of its cap's limit, or if the time window of a reservation is not the current one.
pub(crate) fn reserve_in_spend_caps(
    tx: &Tx<'_>,
    run: RunId,
    reservations: &[CapReservation],
) -> Result<(), RowChangeError> {
    for reservation in reservations {
        let start = reservation.hold.key.window_start;
        if tx.now < start || tx.now >= reservation.window_end {
            return Err(RowChangeError::Refused(AppendRefusalReason::CapWindowPassed));
        }
        let row = load_or_new_spend_row(tx, reservation)?;
        if reservation.hold.amount > row.remaining_amount() {
            return Err(over_cap_refusal(&row));
        }
        let held = row.held.saturating_add(reservation.hold.amount);
        save_spend_row(tx, &CapCounterRow { held, ..row })?;
    }
    tx.exec("DELETE FROM spend_wait WHERE run = ?1", params![run.bytes()])
}

/// Counts a new run in the spend caps that refuse new tasks. Refused if such a cap is reached: its
/// limit is used up, the run's amount does not fit into the rest of the limit, or another run waits
/// because of the cap.
pub(crate) fn count_new_run_in_caps(
    tx: &Tx<'_>,
    reservations: &[CapReservation],
) -> Result<(), RowChangeError> {
    for reservation in reservations {
        let stored = load_spend_row(tx, &reservation.hold.key)?;
        let row = load_or_new_spend_row(tx, reservation)?;
        if reservation.hold.amount > row.remaining_amount()
            || row.remaining_amount() == 0
            || count_runs_waiting_at_cap(tx, &row.key)? > 0
        {
            return Err(over_cap_refusal(&row));
        }
        let spent = row.spent.saturating_add(reservation.hold.amount);
        // The limit that workers use stays, because a process that submits may have another one.
        let limit = stored.map_or(row.limit, |stored| stored.limit);
        save_spend_row(tx, &CapCounterRow { spent, limit, ..row })?;
    }
    Ok(())
}

/// Returns the refusal of an amount that does not fit into the rest of a spend cap's limit.
fn over_cap_refusal(row: &CapCounterRow) -> RowChangeError {
    RowChangeError::Refused(AppendRefusalReason::OverCap(Box::new(row.refusal())))
}

/// Returns the stored amounts of the spend cap that a reservation belongs to, or zero amounts if
/// none are stored. The limit of the returned row is the reservation's limit.
fn load_or_new_spend_row(tx: &Tx<'_>, reservation: &CapReservation) -> Result<CapCounterRow> {
    let CapReservation { hold, window_end, limit } = reservation;
    let found = load_spend_row(tx, &hold.key)?;
    let row = found.unwrap_or_else(|| CapCounterRow::new(hold.key.clone(), *window_end, *limit));
    Ok(CapCounterRow { limit: *limit, ..row })
}

fn load_spend_row(tx: &Tx<'_>, key: &CapCounterKey) -> Result<Option<CapCounterRow>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM spend s WHERE s.cap = ?1 AND s.subject = ?2 AND s.window_start = ?3"
    );
    let key = params![key.cap, key.subject, key.window_start.as_micros()];
    tx.query_one(&sql, key, read_cap_counter_row)
}

fn save_spend_row(tx: &Tx<'_>, row: &CapCounterRow) -> Result<()> {
    tx.exec(
        "INSERT OR REPLACE INTO spend (cap, subject, window_start, window_end, cap_limit,
                                       raised_limit, spent, lost, held)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            row.key.cap,
            row.key.subject,
            row.key.window_start.as_micros(),
            row.window_end.as_micros(),
            amount_to_column(row.limit),
            row.raised_limit.map(amount_to_column),
            amount_to_column(row.spent),
            amount_to_column(row.lost),
            amount_to_column(row.held)
        ],
    )
}

/// Releases reserved amounts, adds the amounts that were spent or lost (reserved for calls whose
/// result was lost), and wakes waiting runs whose amounts now fit into the rest of a cap's limit. A
/// row of amounts that was pruned in the meantime is not created again.
pub(crate) fn settle_spend_caps(tx: &Tx<'_>, settlements: &[CapSettlement]) -> Result<()> {
    for settlement in settlements {
        let Some(row) = load_spend_row(tx, &settlement.key)? else {
            continue;
        };
        let row = CapCounterRow {
            held: row.held.saturating_sub(settlement.held),
            spent: row.spent.saturating_add(settlement.spent),
            lost: row.lost.saturating_add(settlement.lost),
            ..row
        };
        save_spend_row(tx, &row)?;
        wake_runs_waiting_at_cap(tx, &row, CAP_WAKES_MAX)?;
    }
    Ok(())
}

/// Records that a run waits because of a spend cap. A run waits because of one cap at a time. If
/// its amount already fits into the rest of the limit, because reserved amounts were released since
/// the refusal, the run is woken at once.
pub(crate) fn queue_run_at_spend_cap(tx: &Tx<'_>, run: RunId, wait: &CapWaitRow) -> Result<()> {
    let CapHold { key, amount, .. } = &wait.reservation.hold;
    let row = load_or_new_spend_row(tx, &wait.reservation)?;
    if *amount <= row.remaining_amount() {
        return make_timer_due(tx, wait.timer);
    }
    // Without a row a change of the configuration would not find the run.
    if load_spend_row(tx, key)?.is_none() {
        save_spend_row(tx, &row)?;
    }
    tx.exec(
        "INSERT OR REPLACE INTO spend_wait (run, cap, subject, window_start, amount, timer, since)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            run.bytes(),
            key.cap,
            key.subject,
            key.window_start.as_micros(),
            amount_to_column(*amount),
            wait.timer.bytes(),
            tx.now_micros()
        ],
    )
}

/// Wakes the runs that wait because of any spend cap, if their amounts fit into the rest of its
/// limit.
pub(crate) fn wake_runs_waiting_at_caps(tx: &Tx<'_>) -> Result<()> {
    let sql = format!(
        "SELECT {COLUMNS} FROM spend s
          WHERE s.window_end > ?1 AND EXISTS (SELECT 1 FROM spend_wait w
                 WHERE w.cap = s.cap AND w.subject = s.subject AND w.window_start = s.window_start)"
    );
    for row in tx.query_all(&sql, params![tx.now_micros()], read_cap_counter_row)? {
        wake_runs_waiting_at_cap(tx, &row, CAP_SWEEP_WAKES_MAX)?;
    }
    Ok(())
}

/// Wakes runs that wait because of this spend cap, by making their timers due: the longest waiting
/// first, at most `runs_max` runs, and only those whose amounts together fit into the rest of the
/// limit.
fn wake_runs_waiting_at_cap(tx: &Tx<'_>, row: &CapCounterRow, runs_max: usize) -> Result<()> {
    let mut remaining = row.remaining_amount();
    let sql = format!(
        "SELECT w.run, w.timer, w.amount FROM spend_wait w
          WHERE w.cap = ?2 AND w.subject = ?3 AND w.window_start = ?4 AND w.amount <= ?5
            AND {}
          ORDER BY w.since, w.run LIMIT ?6",
        *RUN_WAITS
    );
    let waiting: Vec<([u8; 16], [u8; 16], u64)> = tx.query_all(
        &sql,
        params![
            PARKED,
            row.key.cap,
            row.key.subject,
            row.key.window_start.as_micros(),
            amount_to_column(remaining),
            limit_to_column(runs_max)
        ],
        |row| Ok((row.get(0)?, row.get(1)?, get_u64(row, 2)?)),
    )?;
    for (run, timer, amount) in waiting {
        if amount > remaining {
            continue;
        }
        remaining -= amount;
        make_timer_due(tx, TimerId::from_bytes(timer))?;
        tx.run("DELETE FROM spend_wait WHERE run = ?1", params![run])?;
    }
    Ok(())
}

fn make_timer_due(tx: &Tx<'_>, timer: TimerId) -> Result<()> {
    let sql = "UPDATE timer SET fire_at = ?2 WHERE timer = ?1";
    tx.exec(sql, params![timer.bytes(), tx.now_micros()])
}

fn count_runs_waiting_at_cap(tx: &Tx<'_>, key: &CapCounterKey) -> Result<u64> {
    let sql = format!(
        "SELECT count(*) FROM spend_wait w
          WHERE w.cap = ?2 AND w.subject = ?3 AND w.window_start = ?4 AND {}",
        *RUN_WAITS
    );
    let key = params![PARKED, key.cap, key.subject, key.window_start.as_micros()];
    Ok(tx.query_one(&sql, key, |row| get_u64(row, 0))?.unwrap_or_default())
}

/// Changes the limit of a spend cap in one window, and wakes waiting runs whose amounts now fit
/// into the rest of the limit.
pub(crate) fn set_cap_limit(tx: &Tx<'_>, change: &CapLimitChange) -> Result<()> {
    let CapLimitChange { cap, subject, period, limit } = change;
    let rows = match subject {
        Some(subject) => {
            let (cap, subject) = (cap.clone(), subject.clone());
            let key = CapCounterKey { cap, subject, window_start: period.start };
            let row = load_spend_row(tx, &key)?;
            let row = row.unwrap_or_else(|| CapCounterRow::new(key, period.end, 0));
            let limit = row.raised_limit.unwrap_or_default().max(*limit);
            vec![CapCounterRow { raised_limit: Some(limit), ..row }]
        }
        None => {
            let sql = format!(
                "SELECT {COLUMNS} FROM spend s
                  WHERE s.cap = ?1 AND s.window_start = ?2 AND s.cap_limit <> ?3"
            );
            let start = period.start.as_micros();
            let outdated = params![cap, start, amount_to_column(*limit)];
            let rows = tx.query_all(&sql, outdated, read_cap_counter_row)?;
            rows.into_iter().map(|row| CapCounterRow { limit: *limit, ..row }).collect()
        }
    };
    for row in &rows {
        save_spend_row(tx, row)?;
        wake_runs_waiting_at_cap(tx, row, CAP_WAKES_MAX)?;
    }
    Ok(())
}

/// Lists the amounts that are spent, lost and reserved in the current windows of spend caps. Rows
/// with the most waiting runs come first, then those with the highest usage.
pub(crate) fn list_spend_rows(tx: &Tx<'_>) -> Result<Vec<CapCounterRow>> {
    let sql = format!(
        "SELECT {COLUMNS}, (SELECT count(*) FROM spend_wait w
                            WHERE w.cap = s.cap AND w.subject = s.subject
                              AND w.window_start = s.window_start AND {}) AS waiting
           FROM spend s WHERE s.window_end > ?2 AND s.window_start <= ?2
          ORDER BY waiting DESC, s.spent + s.lost + s.held DESC, s.cap, s.subject LIMIT ?3",
        *RUN_WAITS
    );
    let window = params![PARKED, tx.now_micros(), limit_to_column(SPEND_ROWS_MAX)];
    tx.query_all(&sql, window, |row| {
        Ok(CapCounterRow { waiting: get_u64(row, 9)?, ..read_cap_counter_row(row)? })
    })
}

fn read_cap_counter_row(row: &Row<'_>) -> Result<CapCounterRow> {
    let raised_limit: Option<i64> = row.get(5)?;
    let (cap, subject) = (row.get(0)?, row.get(1)?);
    Ok(CapCounterRow {
        key: CapCounterKey { cap, subject, window_start: get_time(row, 2)? },
        window_end: get_time(row, 3)?,
        limit: get_u64(row, 4)?,
        raised_limit: raised_limit.map(|_| get_u64(row, 5)).transpose()?,
        spent: get_u64(row, 6)?,
        lost: get_u64(row, 7)?,
        held: get_u64(row, 8)?,
        waiting: 0,
    })
}
