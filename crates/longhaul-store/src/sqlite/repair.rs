//! Looks for rows that crossed each other, mends and counts them.
//!
//! Never: finds anything, unless there is a bug elsewhere. It looks beside the
//! writer and asks it for a turn only when there is something to mend.

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::records::Repairs;
use rusqlite::{Result, params};

use crate::sqlite::column::{ENDED, PARKED, READY, gate_status_code};
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::error::{ChangeError, CommandError};
use crate::sqlite::head::wake;
use crate::sqlite::lane::{promote, stuck_lanes};
use crate::sqlite::slot::{leaked_slots, release};
use crate::sqlite::tx::Tx;

const READY_WITHOUT_ROW: &str = "SELECT h.run FROM run_head h INDEXED BY run_head_open
      WHERE h.state <> 5 AND h.state = ?1
        AND NOT EXISTS (SELECT 1 FROM ready q WHERE q.run = h.run)";

const ROW_WITHOUT_READY: &str = "SELECT q.run FROM ready q LEFT JOIN run_head h ON h.run = q.run
      WHERE coalesce(h.state, ?2) <> ?1";

/// Each reason to rest, and what must stand somewhere for it to end by itself.
/// A person, a child or the run before it in its batch ends the others.
const PARKED_WITHOUT_WAKER: &str = "SELECT h.run FROM run_head h INDEXED BY run_head_open
      WHERE h.state <> 5 AND h.state = ?1 AND CASE
        WHEN h.reason IN ('approval', 'question', 'signal', 'blocked') THEN
          NOT EXISTS (SELECT 1 FROM gate g WHERE g.run = h.run AND g.status = 0)
        WHEN h.reason IN ('timer', 'retry', 'rate_limit', 'message', 'start_at') THEN
          NOT EXISTS (SELECT 1 FROM timer t WHERE t.run = h.run)
        WHEN h.reason = 'sandbox_slot' THEN
          NOT EXISTS (SELECT 1 FROM timer t WHERE t.run = h.run)
          AND NOT EXISTS (SELECT 1 FROM sandbox_slot_wait w WHERE w.run = h.run)
        ELSE 0 END";

const GATE_OF_ENDED: &str = "SELECT g.id FROM gate g INDEXED BY gate_open
       LEFT JOIN run_head h ON h.run = g.run
      WHERE g.status = 0 AND coalesce(h.state, ?1) = ?1";

/// What is out of order, by id.
struct Inconsistencies {
    ready_without_row: Vec<[u8; 16]>,
    row_without_ready: Vec<[u8; 16]>,
    parked_without_waker: Vec<[u8; 16]>,
    lane_stuck: Vec<String>,
    gate_of_ended: Vec<[u8; 16]>,
    slot_leaked: Vec<longhaul_core::id::SandboxId>,
}

fn find(tx: &Tx<'_>) -> Result<Inconsistencies> {
    let id = |row: &rusqlite::Row<'_>| row.get(0);
    Ok(Inconsistencies {
        ready_without_row: tx.all(READY_WITHOUT_ROW, params![READY], id)?,
        row_without_ready: tx.all(ROW_WITHOUT_READY, params![READY, ENDED], id)?,
        parked_without_waker: tx.all(PARKED_WITHOUT_WAKER, params![PARKED], id)?,
        lane_stuck: stuck_lanes(tx)?,
        gate_of_ended: tx.all(GATE_OF_ENDED, params![ENDED], id)?,
        slot_leaked: leaked_slots(tx)?,
    })
}

impl Inconsistencies {
    fn count(&self) -> Repairs {
        Repairs {
            ready_without_row: self.ready_without_row.len() as u64,
            row_without_ready: self.row_without_ready.len() as u64,
            parked_without_waker: self.parked_without_waker.len() as u64,
            lane_stuck: self.lane_stuck.len() as u64,
            gate_of_ended: self.gate_of_ended.len() as u64,
            slot_leaked: self.slot_leaked.len() as u64,
        }
    }
}

/// Number of rows that are out of order, by kind.
pub(crate) fn count(tx: &Tx<'_>) -> Result<Repairs> {
    Ok(find(tx)?.count())
}

/// Whether there is nothing to mend.
pub(crate) fn is_clean(tx: &Tx<'_>) -> Result<bool> {
    Ok(count(tx)?.is_clean())
}

/// Mends everything that can be mended.
pub(crate) fn repair(tx: &Tx<'_>) -> Result<CommandOutcome<Repairs>, CommandError> {
    let found = find(tx)?;
    match fix(tx, &found) {
        Ok(()) => Ok(CommandOutcome::Changed(found.count())),
        Err(ChangeError::Failed(fault)) => Err(fault),
        Err(ChangeError::Refused(why)) => {
            Err(CommandError::InconsistentRows(format!("a repair was refused by {why:?}")))
        }
    }
}

fn fix(tx: &Tx<'_>, found: &Inconsistencies) -> Result<(), ChangeError> {
    for run in &found.ready_without_row {
        tx.run(
            "INSERT OR IGNORE INTO ready (inbox, rank, sort_key, run, kind)
             SELECT inbox, -priority, 0, id, kind FROM run WHERE id = ?1",
            params![run],
        )?;
    }
    for run in &found.row_without_ready {
        tx.run("DELETE FROM ready WHERE run = ?1", params![run])?;
    }
    for run in &found.parked_without_waker {
        wake(tx, RunId::from_bytes(*run))?;
    }
    for lane in &found.lane_stuck {
        promote(tx, lane)?;
    }
    for gate in &found.gate_of_ended {
        let withdrawn = gate_status_code(GateStatus::Withdrawn);
        tx.run("UPDATE gate SET status = ?2 WHERE id = ?1", params![gate, withdrawn])?;
    }
    for sandbox in &found.slot_leaked {
        release(tx, *sandbox)?;
    }
    Ok(())
}
