//! Timers: armed, due, spent by whoever tells them first.
//!
//! Never: wakes a run itself. A fact does, and it spends the timer with it.

use longhaul_core::change::{Due, TimerKind, TimerUpdate};
use longhaul_core::id::{RunId, TimerId};
use longhaul_core::port::records::DueTimer;
use longhaul_core::port::store::Refused;
use longhaul_core::time::Timestamp;
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, json, limit, time, to_json};
use crate::sqlite::error::ChangeError;
use crate::sqlite::gate;
use crate::sqlite::tx::Tx;

/// Walks the timers in the order of their times.
pub(crate) const SELECT_DUE: &str =
    "SELECT t.timer, t.run, t.kind, t.fire_at, coalesce(h.state, ?2) = ?2
       FROM timer t LEFT JOIN run_head h ON h.run = t.run
      WHERE t.fire_at <= ?1 ORDER BY t.fire_at, t.timer LIMIT ?3";

/// Arms a timer or spends one.
pub(crate) fn update(tx: &Tx<'_>, to: &TimerUpdate) -> Result<(), ChangeError> {
    match to {
        TimerUpdate::Arm { timer, run, due, kind: what } => {
            let fire_at = match due {
                Due::Now => tx.now,
                Due::After(span) => tx.now.plus(*span),
                Due::At(at) => *at,
            };
            tx.exec(
                "INSERT INTO timer (fire_at, timer, run, kind) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (timer) DO UPDATE
                    SET fire_at = excluded.fire_at, run = excluded.run, kind = excluded.kind",
                params![fire_at.as_micros(), timer.bytes(), run.bytes(), to_json(what)?],
            )
        }
        TimerUpdate::Consume(timer) => {
            let spent = tx.run("DELETE FROM timer WHERE timer = ?1", params![timer.bytes()])?;
            if spent == 0 {
                return Err(ChangeError::Refused(Refused::TimerConsumed));
            }
            Ok(())
        }
    }
}

/// Timers that are due, the longest due first.
pub(crate) fn due_timers(tx: &Tx<'_>, count: usize) -> Result<Vec<DueTimer>> {
    let mut due = tx.all(SELECT_DUE, params![tx.now_micros(), ENDED, limit(count)], |row| {
        Ok(DueTimer {
            timer: TimerId::from_bytes(row.get(0)?),
            run: RunId::from_bytes(row.get(1)?),
            kind: json(row, 2)?,
            due: time(row, 3)?,
            run_ended: row.get(4)?,
            gate_on_timeout: None,
        })
    })?;
    for timer in &mut due {
        if let TimerKind::GateDeadline(at) | TimerKind::GateRemind(at) = timer.kind {
            timer.gate_on_timeout = gate::open_gate_timeout(tx, at)?;
        }
    }
    Ok(due)
}

/// When the next timer is due.
pub(crate) fn next_timer_due(tx: &Tx<'_>) -> Result<Option<Timestamp>> {
    let sql = "SELECT fire_at FROM timer ORDER BY fire_at LIMIT 1";
    tx.one(sql, (), |row| time(row, 0))
}
