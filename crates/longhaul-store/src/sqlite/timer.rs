//! Timers. A timer that is due does not wake its run directly: the run is woken by an event, which
//! consumes the timer in the same transaction.

use longhaul_core::chain::AUTO_APPROVE_DELAY;
use longhaul_core::change::{TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::id::{RunId, TimerId};
use longhaul_core::port::records::{DueTimer, OUTBOX_DELAY_MAX};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::time::Timestamp;
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, get_json, get_time, limit_to_column, to_json};
use crate::sqlite::error::RowChangeError;
use crate::sqlite::gate;
use crate::sqlite::tx::Tx;

/// Selects timers that are due, ordered by time.
pub(crate) const SELECT_DUE_TIMERS: &str =
    "SELECT t.timer, t.run, t.kind, t.fire_at, coalesce(h.state, ?2) = ?2
       FROM timer t LEFT JOIN run_head h ON h.run = t.run
      WHERE t.fire_at <= ?1 ORDER BY t.fire_at, t.timer LIMIT ?3";

/// Sets a timer, consumes a timer by deleting it, or deletes the timers that approve gates of a run
/// automatically. Refused if the timer to consume does not exist any more.
pub(crate) fn set_or_delete_timers(
    tx: &Tx<'_>,
    timer_update: &TimerUpdate,
) -> Result<(), RowChangeError> {
    match timer_update {
        TimerUpdate::Arm { timer, run, due, kind } => {
            let fire_at = match due {
                TimerDueTime::Now => tx.now,
                TimerDueTime::After(delay) => tx.now.plus(*delay),
                TimerDueTime::At(at) => *at,
            };
            Ok(arm_timer(tx, &ArmedTimer { timer: *timer, run: *run, fire_at, kind })?)
        }
        TimerUpdate::Consume(timer) => {
            let deleted_count =
                tx.run("DELETE FROM timer WHERE timer = ?1", params![timer.bytes()])?;
            if deleted_count == 0 {
                return Err(RowChangeError::Refused(AppendRefusalReason::TimerConsumed));
            }
            Ok(())
        }
        TimerUpdate::Cancel(timer) => {
            tx.run("DELETE FROM timer WHERE timer = ?1", params![timer.bytes()])?;
            Ok(())
        }
        TimerUpdate::StopAutoApproval(run) => {
            tx.run(
                "DELETE FROM timer WHERE run = ?1 AND kind LIKE '{\"gate_auto_approve\":%'",
                params![run.bytes()],
            )?;
            Ok(gate::remove_auto_approval_of_open_gates(tx, *run)?)
        }
    }
}

/// A timer of a run, with the time at which it fires.
pub(crate) struct ArmedTimer<'a> {
    pub(crate) timer: TimerId,
    pub(crate) run: RunId,
    pub(crate) fire_at: Timestamp,
    pub(crate) kind: &'a TimerKind,
}

/// Sets a timer, or moves it if it is already set.
pub(crate) fn arm_timer(tx: &Tx<'_>, armed: &ArmedTimer<'_>) -> Result<()> {
    let ArmedTimer { timer, run, fire_at, kind } = armed;
    tx.exec(
        "INSERT INTO timer (fire_at, timer, run, kind) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (timer) DO UPDATE
            SET fire_at = excluded.fire_at, run = excluded.run, kind = excluded.kind",
        params![fire_at.as_micros(), timer.bytes(), run.bytes(), to_json(kind)?],
    )
}

/// Moves each timer that is due later than its own delay from now. Makes each outbox message due
/// whose next attempt is later than the maximum delay from now. Returns the number of both.
pub(crate) fn move_delays_set_by_later_clock(tx: &Tx<'_>) -> Result<usize> {
    let auto_approval = i64::try_from(AUTO_APPROVE_DELAY.0).unwrap_or(i64::MAX);
    let timers = tx.run(
        "UPDATE timer SET fire_at = ?1 + 1000 * coalesce(json_extract(kind, '$.delay'), ?2)
          WHERE fire_at > ?1
            AND (kind LIKE '{\"delay\":%' OR kind LIKE '{\"gate_auto_approve\":%')
            AND fire_at > ?1 + 1000 * coalesce(json_extract(kind, '$.delay'), ?2)",
        params![tx.now_micros(), auto_approval],
    )?;
    let attempts = tx.run(
        "UPDATE outbox SET due_at = ?1 WHERE due_at > ?2",
        params![tx.now_micros(), tx.now.plus(OUTBOX_DELAY_MAX).as_micros()],
    )?;
    Ok(timers + attempts)
}

/// Returns whether there is a timer with this id.
pub(crate) fn is_timer_set(tx: &Tx<'_>, timer: TimerId) -> Result<bool> {
    let sql = "SELECT 1 FROM timer WHERE timer = ?1";
    Ok(tx.query_one(sql, params![timer.bytes()], |_| Ok(()))?.is_some())
}

/// Lists timers that are due, oldest first.
pub(crate) fn due_timers(tx: &Tx<'_>, limit: usize) -> Result<Vec<DueTimer>> {
    let mut due = tx.query_all(
        SELECT_DUE_TIMERS,
        params![tx.now_micros(), ENDED, limit_to_column(limit)],
        |row| {
            Ok(DueTimer {
                timer: TimerId::from_bytes(row.get(0)?),
                run: RunId::from_bytes(row.get(1)?),
                kind: get_json(row, 2)?,
                due: get_time(row, 3)?,
                run_ended: row.get(4)?,
                open_gate: None,
            })
        },
    )?;
    for timer in &mut due {
        if let Some(gate) = timer.kind.gate() {
            timer.open_gate = gate::find_open_gate(tx, gate)?.map(Box::new);
        }
    }
    Ok(due)
}

/// Returns when the next timer is due. `None` means that there are no timers.
pub(crate) fn next_timer_due(tx: &Tx<'_>) -> Result<Option<Timestamp>> {
    let sql = "SELECT fire_at FROM timer ORDER BY fire_at LIMIT 1";
    tx.query_one(sql, (), |row| get_time(row, 0))
}
